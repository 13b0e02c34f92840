// One binary that is the whole control plane, picked by the name it is called with.
//
// Linking the commands together costs one link instead of seven and shares one
// copy of client-go on disk. It is a development tool: never shipped, never in an image.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	_ "time/tzdata"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func serve(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

var commands = map[string]func(){
	"kube-apiserver":          serve(func() *cobra.Command { return apiserver.NewAPIServerCommand() }),
	"kube-controller-manager": serve(func() *cobra.Command { return controllers.NewControllerManagerCommand() }),
	"kube-scheduler":          serve(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              serve(func() *cobra.Command { return proxy.NewProxyCommand() }),
	"kubelet":                 serve(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
	"etcd":    func() { etcdmain.Main(os.Args) },
	"coredns": runCoreDNS,
}

func main() {
	name := filepath.Base(os.Args[0])
	if run, known := commands[name]; known {
		run()
		return
	}
	names := make([]string, 0, len(commands))
	for known := range commands {
		names = append(names, known)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "%q is not one of: %s (link one of these names to this binary)\n", name, strings.Join(names, ", "))
	os.Exit(2)
}
