// test-kubelet is a kubelet for tests: it makes a node of a cluster out of a network namespace and runs pods as processes.
//
//	test-kubelet --kubeconfig FILE --node NAME --node-ip ADDRESS --state-dir FOLDER --images FILE --prefix NAME …
//	test-kubelet sweep --prefix NAME       removes network namespaces that were left behind
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"sealane.io/test-kubelet/internal/kubelet"
	"sealane.io/test-kubelet/internal/network"
	"sealane.io/test-kubelet/internal/sandbox"
	"sealane.io/test-kubelet/internal/server"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == sandbox.StageArgument {
		sandbox.Stage()
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "test-kubelet:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) > 0 && arguments[0] == "sweep" {
		return sweep(arguments[1:])
	}
	options, err := parse(arguments)
	if err != nil {
		return err
	}
	if err := enterNode(options.netns); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	config, err := options.config(log)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	node := kubelet.New(config)
	served := make(chan error, 1)
	go func() {
		address := net.JoinHostPort(config.NodeIPs[0], strconv.Itoa(config.Port))
		err := server.Serve(ctx, server.Config{
			Address: address, Node: node, CertFile: options.tlsCert, KeyFile: options.tlsKey,
			ClientCA: options.clientCA, Hosts: append([]string{config.Node}, config.NodeIPs...), Log: log,
		})
		stop() // a node that cannot be asked is of no use
		served <- err
	}()
	err = node.Run(ctx)
	stop()
	if serverError := <-served; serverError != nil {
		err = serverError
	}
	if options.cleanup {
		node.Cleanup()
	}
	return err
}

func sweep(arguments []string) error {
	flags := flag.NewFlagSet("test-kubelet sweep", flag.ContinueOnError)
	prefix := flags.String("prefix", "", "first part of the namespaces' names")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *prefix == "" {
		return fmt.Errorf("sweep: --prefix is expected")
	}
	removed, err := network.Sweep(*prefix)
	for _, name := range removed {
		fmt.Println(name)
	}
	return err
}
