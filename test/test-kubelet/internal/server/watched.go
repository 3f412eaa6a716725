package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
)

// untilGone gives a context that ends when the client's connection does. A request's own context no longer follows
// the connection once it has been taken over for streams, and a command whose caller has gone would run for ever.
func untilGone(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	return &watchedWriter{ResponseWriter: w, gone: cancel}, r.WithContext(ctx), cancel
}

type watchedWriter struct {
	http.ResponseWriter
	gone func()
}

func (writer *watchedWriter) Flush() {
	if flusher, ok := writer.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (writer *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	connection, buffered, err := http.NewResponseController(writer.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	watched := &watchedConnection{Conn: connection, gone: writer.gone}
	// What has been read already comes first, then the rest through the watched connection.
	early, _ := buffered.Peek(buffered.Reader.Buffered())
	reader := io.MultiReader(bytes.NewReader(bytes.Clone(early)), watched)
	return watched, bufio.NewReadWriter(bufio.NewReader(reader), bufio.NewWriter(watched)), nil
}

// watchedConnection notices the end when its reader does: both kinds of streams read all the time.
type watchedConnection struct {
	net.Conn
	gone func()
}

func (connection *watchedConnection) Read(buffer []byte) (int, error) {
	count, err := connection.Conn.Read(buffer)
	if err != nil {
		connection.gone()
	}
	return count, err
}
