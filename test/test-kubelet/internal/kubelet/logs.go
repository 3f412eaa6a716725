package kubelet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A container's output is kept in a file, one line per line: "<RFC 3339 time> <stdout|stderr> <F|P> <text>", the form
// that container runtimes use. P marks a line that goes on in the next.
const (
	maxLogBytes  = 16 << 20
	maxLineBytes = 16 << 10
	// Of what a program wrote last, a pod's status has so much.
	maxTailBytes = 2048
)

// logFile is one life of a container. Its two writers share it.
type logFile struct {
	mu      sync.Mutex
	file    *os.File
	written int
	tail    []byte
}

func newLogFile(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &logFile{file: file}, nil
}

func (log *logFile) line(stream, mark string, text []byte) error {
	log.mu.Lock()
	defer log.mu.Unlock()
	log.tail = fmt.Appendf(log.tail, "%s\n", text)
	log.tail = log.tail[max(0, len(log.tail)-maxTailBytes):]
	if log.written > maxLogBytes {
		return nil
	}
	entry := fmt.Appendf(nil, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, mark, text)
	log.written += len(entry)
	if log.written > maxLogBytes {
		entry = fmt.Appendf(nil, "%s stderr F test-kubelet: the log ends here, it has reached %d bytes\n", time.Now().UTC().Format(time.RFC3339Nano), maxLogBytes)
	}
	_, err := log.file.Write(entry)
	return err
}

// lastWords is what a pod's status says of a program that failed, with FallbackToLogsOnError.
func (log *logFile) lastWords() string {
	log.mu.Lock()
	defer log.mu.Unlock()
	return string(log.tail)
}

func (log *logFile) Close() error { return log.file.Close() }

// writer cuts one stream into lines.
type logWriter struct {
	log    *logFile
	stream string
	rest   []byte
}

func (writer *logWriter) Write(data []byte) (int, error) {
	writer.rest = append(writer.rest, data...)
	for {
		end := bytes.IndexByte(writer.rest, '\n')
		switch {
		case end >= 0:
			if err := writer.log.line(writer.stream, "F", writer.rest[:end]); err != nil {
				return 0, err
			}
			writer.rest = writer.rest[end+1:]
		case len(writer.rest) >= maxLineBytes:
			if err := writer.log.line(writer.stream, "P", writer.rest); err != nil {
				return 0, err
			}
			writer.rest = nil
		default:
			return len(data), nil
		}
	}
}

// flush writes what has no end of line.
func (writer *logWriter) flush() {
	if len(writer.rest) > 0 {
		_ = writer.log.line(writer.stream, "P", writer.rest)
		writer.rest = nil
	}
}
