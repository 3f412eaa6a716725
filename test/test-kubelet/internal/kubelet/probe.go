package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sealane.io/test-kubelet/internal/sandbox"
)

// probe starts a container's probes. What comes out says why the container has to be restarted.
func (worker *worker) probe(ctx context.Context, container *containerState, process *sandbox.Process) <-chan string {
	unhealthy := make(chan string, 1)
	spec := container.spec
	begin := func() {
		if spec.ReadinessProbe != nil {
			go worker.watchReadiness(ctx, container, process)
		}
		if spec.LivenessProbe != nil {
			go worker.watchHealth(ctx, container, process, spec.LivenessProbe, "liveness", unhealthy)
		}
	}
	if spec.StartupProbe == nil {
		begin()
		return unhealthy
	}
	go func() {
		if worker.watchStartup(ctx, container, process, unhealthy) {
			begin()
		}
	}()
	return unhealthy
}

func (worker *worker) watchStartup(ctx context.Context, container *containerState, process *sandbox.Process, unhealthy chan<- string) bool {
	probe, failures := container.spec.StartupProbe, int32(0)
	pause := time.Duration(probe.InitialDelaySeconds) * time.Second
	for sleep(ctx, pause) {
		pause = time.Duration(probe.PeriodSeconds) * time.Second
		err := worker.probeOnce(ctx, container, process, probe)
		if err == nil {
			worker.state.update(func() {
				container.started = true
				container.ready = container.spec.ReadinessProbe == nil
			})
			return true
		}
		if failures++; failures >= probe.FailureThreshold && ctx.Err() == nil {
			unhealthy <- fmt.Sprintf("container %s: startup probe failed: %v", container.spec.Name, err)
			return false
		}
	}
	return false
}

func (worker *worker) watchReadiness(ctx context.Context, container *containerState, process *sandbox.Process) {
	probe := container.spec.ReadinessProbe
	good, bad := int32(0), int32(0)
	pause := time.Duration(probe.InitialDelaySeconds) * time.Second
	for sleep(ctx, pause) {
		pause = time.Duration(probe.PeriodSeconds) * time.Second
		err := worker.probeOnce(ctx, container, process, probe)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
			// A program that needs a moment to start shall not wait a whole period to be seen ready.
			pause = min(pause, time.Second)
		}
		before, ready := false, false
		worker.state.read(func() { before = container.ready })
		switch {
		case good >= probe.SuccessThreshold:
			ready = true
		case bad < probe.FailureThreshold:
			ready = before
		}
		changed := ready != before
		if changed {
			if !ready {
				worker.warn("Unhealthy", fmt.Sprintf("container %s: readiness probe failed: %v", container.spec.Name, err))
			}
			worker.state.update(func() { container.ready = ready && container.running != nil })
		}
	}
}

func (worker *worker) watchHealth(ctx context.Context, container *containerState, process *sandbox.Process, probe *corev1.Probe, name string, unhealthy chan<- string) {
	bad := int32(0)
	pause := time.Duration(probe.InitialDelaySeconds) * time.Second
	for sleep(ctx, pause) {
		pause = time.Duration(probe.PeriodSeconds) * time.Second
		err := worker.probeOnce(ctx, container, process, probe)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			bad = 0
		} else if bad++; bad >= probe.FailureThreshold {
			unhealthy <- fmt.Sprintf("container %s: %s probe failed: %v", container.spec.Name, name, err)
			return
		}
	}
}

// probeOnce asks once; nil is a yes.
func (worker *worker) probeOnce(ctx context.Context, container *containerState, process *sandbox.Process, probe *corev1.Probe) error {
	timeout := time.Duration(max(1, probe.TimeoutSeconds)) * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case probe.Exec != nil:
		code, err := runIn(ctx, container, process, probe.Exec.Command, sandbox.Streams{Stdout: io.Discard, Stderr: io.Discard})
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	case probe.TCPSocket != nil:
		address, err := worker.probeAddress(container, probe.TCPSocket.Host, probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return connection.Close()
	case probe.HTTPGet != nil:
		return worker.probeHTTP(ctx, container, probe.HTTPGet)
	}
	return fmt.Errorf("the probe asks nothing")
}

func (worker *worker) probeHTTP(ctx context.Context, container *containerState, action *corev1.HTTPGetAction) error {
	address, err := worker.probeAddress(container, action.Host, action.Port)
	if err != nil {
		return err
	}
	target, err := url.Parse("/" + strings.TrimPrefix(action.Path, "/"))
	if err != nil {
		return err
	}
	target.Scheme, target.Host = strings.ToLower(string(action.Scheme)), address
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/1.36")
	for _, header := range action.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
		if strings.EqualFold(header.Name, "Host") {
			request.Host = header.Value
		}
	}
	// As kubelets do: a probe asks whether somebody answers, not who it is.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %d", response.StatusCode)
	}
	return nil
}

func (worker *worker) probeAddress(container *containerState, host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = worker.facts().PodIPs[0]
	}
	if port.Type == intstr.Int {
		return net.JoinHostPort(host, strconv.Itoa(port.IntValue())), nil
	}
	for _, known := range container.spec.Ports {
		if known.Name == port.StrVal {
			return net.JoinHostPort(host, strconv.Itoa(int(known.ContainerPort))), nil
		}
	}
	return "", fmt.Errorf("the container has no port named %q", port.StrVal)
}
