#!/bin/sh
# What Spark on Kubernetes expects of an image: it starts containers as `driver ARGUMENTS...` or `executor`.
# PySpark's package brings everything but this.
set -eu

# Spark asks for the name of its user, and an arbitrary uid (OpenShift) has none.
if ! id -un >/dev/null 2>&1; then
    export HADOOP_USER_NAME=spark
fi

role="${1:-}"
[ "$#" -eq 0 ] || shift

case "$role" in
driver)
    exec "$SPARK_HOME/bin/spark-submit" \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
        --deploy-mode client "$@"
    ;;
executor)
    # Options come one per variable, SPARK_JAVA_OPT_0 and on, because each may hold spaces.
    number=0
    set --
    while option=$(printenv "SPARK_JAVA_OPT_$number"); do
        set -- "$@" "$option"
        number=$((number + 1))
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CONF_DIR:-/opt/spark/conf}:$SPARK_HOME/jars/*:${SPARK_CLASSPATH:-}" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec "$role" "$@"
    ;;
esac
