// podexec runs a command in a pod through the API server, for tests that have no other client for it.
//
//	podexec --kubeconfig FILE --namespace NS [--container C] [--protocol spdy|websocket] [--tty] [--stdin]
//	        [--quirk] [--timeout 4s] POD -- COMMAND…
//
// It ends with the command's exit code, or with 255 and a reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

func main() {
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "podexec:", err)
		os.Exit(255)
	}
	os.Exit(code)
}

func run() (int, error) {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	namespace := flag.String("namespace", "default", "the pod's namespace")
	container := flag.String("container", "", "container; default: the first")
	protocol := flag.String("protocol", "spdy", "spdy or websocket")
	tty := flag.Bool("tty", false, "run it in a terminal")
	stdin := flag.Bool("stdin", false, "pass standard input on")
	quirk := flag.Bool("quirk", false, "ask for a terminal and both outputs without a resize stream, as the conformance suite of the Multi-Cluster Services API does")
	timeout := flag.Duration("timeout", 4*time.Second, "give up after this time")
	flag.Parse()
	if flag.NArg() < 2 {
		return 0, fmt.Errorf("expected: POD -- COMMAND…")
	}
	argv := flag.Args()[1:]
	if argv[0] == "--" {
		argv = argv[1:]
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return 0, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(*namespace).Name(flag.Arg(0)).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: *container, Command: argv, Stdin: *stdin, Stdout: true, Stderr: *quirk || !*tty, TTY: *tty || *quirk,
		}, scheme.ParameterCodec)
	executor, err := newExecutor(config, *protocol, request.URL())
	if err != nil {
		return 0, err
	}
	var input io.Reader
	if *stdin {
		input = os.Stdin
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	// With --quirk the streams are opened as for a command without terminal.
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: input, Stdout: os.Stdout, Stderr: os.Stderr, Tty: *tty})
	var exit exec.CodeExitError
	if errors.As(err, &exit) {
		return exit.Code, nil
	}
	return 0, err
}

func newExecutor(config *rest.Config, protocol string, url *url.URL) (remotecommand.Executor, error) {
	switch protocol {
	case "spdy":
		return remotecommand.NewSPDYExecutor(config, "POST", url)
	case "websocket":
		return remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	}
	return nil, fmt.Errorf("--protocol %s: expected spdy or websocket", protocol)
}
