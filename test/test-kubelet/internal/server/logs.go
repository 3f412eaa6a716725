package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"sealane.io/test-kubelet/internal/kubelet"
)

// logOptions are the query parameters of a log request (PodLogOptions of the core API).
type logOptions struct {
	follow, previous, timestamps bool
	tail                         int // -1: all
	limit                        int64
	since                        time.Time
	stream                       string
}

func parseLogOptions(query url.Values) (logOptions, error) {
	options := logOptions{tail: -1, limit: -1}
	for name := range query {
		value := query.Get(name)
		var err error
		switch name {
		case "follow":
			options.follow, err = strconv.ParseBool(value)
		case "previous":
			options.previous, err = strconv.ParseBool(value)
		case "timestamps":
			options.timestamps, err = strconv.ParseBool(value)
		case "tailLines":
			options.tail, err = strconv.Atoi(value)
		case "limitBytes":
			options.limit, err = strconv.ParseInt(value, 10, 64)
		case "sinceSeconds":
			var seconds int
			seconds, err = strconv.Atoi(value)
			options.since = time.Now().Add(-time.Duration(seconds) * time.Second)
		case "sinceTime":
			options.since, err = time.Parse(time.RFC3339, value)
		case "stream":
			options.stream = strings.ToLower(value)
		case "insecureSkipTLSVerifyBackend":
		default:
			err = fmt.Errorf("is not supported by the test kubelet")
		}
		if err != nil {
			return options, fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	return options, nil
}

func serveLogs(w http.ResponseWriter, r *http.Request, node Node) {
	options, err := parseLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	path, live, err := node.LogFile(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), options.previous)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, kubelet.ErrNotFound) {
			status = http.StatusNotFound
		}
		http.Error(w, err.Error(), status)
		return
	}
	file, err := os.Open(path)
	if err != nil {
		http.Error(w, "the container has not been started yet", http.StatusBadRequest)
		return
	}
	defer file.Close()
	w.Header().Set("Content-Type", "text/plain")
	sender := &logSender{out: w, options: options, left: options.limit}
	reader := bufio.NewReader(file)
	if options.tail >= 0 {
		sender.skip, err = linesBeforeTail(path, options)
		if err != nil {
			return
		}
	}
	for {
		// Asked before reading: what was written before the end is still sent.
		goesOn := options.follow && live()
		if !sender.send(reader) || !goesOn {
			return
		}
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func linesBeforeTail(path string, options logOptions) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	counter := &logSender{out: io.Discard, options: options, left: -1}
	counter.send(bufio.NewReader(file))
	return max(0, counter.lines-options.tail), nil
}

type logSender struct {
	out     io.Writer
	options logOptions
	skip    int
	left    int64 // bytes; -1: no limit
	lines   int
	half    string
}

// send passes on what can be read now; false when nothing more is to be sent.
func (sender *logSender) send(reader *bufio.Reader) bool {
	for {
		text, err := reader.ReadString('\n')
		sender.half += text
		if err != nil {
			return err == io.EOF
		}
		line := sender.half
		sender.half = ""
		if !sender.sendLine(line) {
			return false
		}
	}
}

func (sender *logSender) sendLine(line string) bool {
	parts := strings.SplitN(line, " ", 4)
	if len(parts) < 4 {
		return true
	}
	stamp, err := time.Parse(time.RFC3339Nano, parts[0])
	wrongStream := sender.options.stream != "" && sender.options.stream != "all" && sender.options.stream != parts[1]
	if err != nil || stamp.Before(sender.options.since) || wrongStream {
		return true
	}
	sender.lines++
	if sender.lines <= sender.skip {
		return true
	}
	text := parts[3]
	if parts[2] == "P" {
		text = strings.TrimSuffix(text, "\n")
	}
	if sender.options.timestamps {
		text = parts[0] + " " + text
	}
	if sender.left >= 0 && int64(len(text)) > sender.left {
		text = text[:sender.left]
	}
	if sender.left > 0 {
		sender.left -= int64(len(text))
	}
	_, err = io.WriteString(sender.out, text)
	return err == nil && sender.left != 0
}
