{{- define "millrace.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* The release's full name; 52 characters leave room for the suffixes of the objects. */}}
{{- define "millrace.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "millrace.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "millrace.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Cluster-scoped objects carry the namespace too, so that two releases of one name never meet. */}}
{{- define "millrace.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "millrace.fullname" .) }}
{{- end }}

{{- define "millrace.selectorLabels" -}}
app.kubernetes.io/name: {{ include "millrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "millrace.labels" -}}
{{ include "millrace.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: millrace
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "millrace.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "millrace.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "millrace.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "millrace.leaseName" -}}
{{- default (include "millrace.fullname" .) .Values.leaderElection.leaseName }}
{{- end }}

{{/* Where the default connection goes, as {"items": [...]}: templates can only return text. */}}
{{- define "millrace.connectionNamespaces" -}}
{{- $namespaces := list }}
{{- if .Values.defaultConnection.enabled }}
{{- $namespaces = default (list .Release.Namespace) .Values.defaultConnection.namespaces }}
{{- end }}
{{- dict "items" ($namespaces | uniq | sortAlpha) | toJson }}
{{- end }}

{{/* Where Secrets and CA ConfigMaps may be read. */}}
{{- define "millrace.secretNamespaces" -}}
{{- $namespaces := .Values.watchNamespaces }}
{{- if not $namespaces }}
{{- $namespaces = concat .Values.secretNamespaces (include "millrace.connectionNamespaces" . | fromJson).items }}
{{- end }}
{{- dict "items" ($namespaces | uniq | sortAlpha) | toJson }}
{{- end }}

{{/* The document the operator reads; it creates one PulsarConnection per namespace from it. */}}
{{- define "millrace.defaultConnection" -}}
{{- $connection := .Values.defaultConnection }}
{{- $spec := dict "serviceUrl" $connection.serviceUrl "adminUrl" $connection.adminUrl "pulsarNamespaces" $connection.pulsarNamespaces "isDefault" true }}
{{- range $field := list "auth" "adminSecretRef" "clientSecretRef" "tls" }}
{{- with index $connection $field }}
{{- $_ := set $spec $field . }}
{{- end }}
{{- end }}
{{- dict "name" $connection.name "namespaces" (include "millrace.connectionNamespaces" . | fromJson).items "spec" $spec | toYaml }}
{{- end }}

{{- define "millrace.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "millrace.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* What operating on our kinds takes, in the namespaces that are watched. */}}
{{- define "millrace.operatorRules" -}}
- apiGroups: [millrace.dev]
  resources: [compositetopics, pulsarconnections, subscriptions]
  verbs: [get, list, watch]
# Finalizers are metadata: writing one is a patch of the object itself.
- apiGroups: [millrace.dev]
  resources: [compositetopics, subscriptions]
  verbs: [patch]
- apiGroups: [millrace.dev]
  resources: [compositetopics/status, pulsarconnections/status, subscriptions/status]
  verbs: [patch]
# The pods of subscriptions. Patch and create are what server-side apply takes; nothing of this is ever read but the
# Deployments and the Leases.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts]
  verbs: [create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [create, patch]
# "get" and "update" are there to be given to the pods: nobody can grant what he has not.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, create, patch, update]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* What a schema cannot say in words that help. */}}
{{- define "millrace.validate" -}}
{{- $connection := .Values.defaultConnection }}
{{- if and .Values.watchNamespaces (not .Values.clusterId) }}
{{- fail "\n\nclusterId is missing: with watchNamespaces set, the operator may not read the kube-system namespace to find the cluster's identity.\nName it yourself, once and for all, e.g. --set clusterId=production-eu (it is written on every topic; two clusters on one Pulsar need different ones).\n" }}
{{- end }}
{{- if and .Values.watchNamespaces .Values.secretNamespaces }}
{{- fail "\n\nsecretNamespaces is for cluster-wide installations: with watchNamespaces set, Secrets are readable in exactly those namespaces.\nRemove secretNamespaces, or add its namespaces to watchNamespaces.\n" }}
{{- end }}
{{- if $connection.enabled }}
{{- range $field := list "serviceUrl" "adminUrl" "pulsarNamespaces" }}
{{- if not (index $connection $field) }}
{{- fail (printf "\n\ndefaultConnection.%s is missing: a connection needs serviceUrl, adminUrl and pulsarNamespaces.\nSet it, or leave the default connection out with --set defaultConnection.enabled=false.\n" $field) }}
{{- end }}
{{- end }}
{{- $auth := default "None" $connection.auth.type }}
{{- if and (ne $auth "None") (not $connection.adminSecretRef.name) }}
{{- fail (printf "\n\ndefaultConnection.adminSecretRef.name is missing: with auth.type %s, name the Secret that holds the operator's credentials.\n" $auth) }}
{{- end }}
{{- if and (eq $auth "None") (or $connection.adminSecretRef $connection.clientSecretRef) }}
{{- fail "\n\ndefaultConnection.auth.type is missing: the Secrets named would not be used. Set it to Token, MTLS or OAuth2, or remove adminSecretRef and clientSecretRef.\n" }}
{{- end }}
{{- if .Values.watchNamespaces }}
{{- range $namespace := (include "millrace.connectionNamespaces" . | fromJson).items }}
{{- if not (has $namespace $.Values.watchNamespaces) }}
{{- fail (printf "\n\nThe default connection would be created in namespace %q, which is not watched.\nAdd it to watchNamespaces, or list other namespaces in defaultConnection.namespaces.\n" $namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
{{- fail "\n\nserviceAccount.name is missing: with serviceAccount.create=false, say which ServiceAccount the operator runs as.\n" }}
{{- end }}
{{- end }}
