// Command webhooks receives webhooks with the Go library of Standard Webhooks, as a caller of refundd would. It prints its URL,
// and then a line for each message: what it tells where the library verifies it, or why not. Its secret comes on stdin,
// once there is an endpoint.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "receive webhooks:", err)
		os.Exit(1)
	}
}

func run() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // lives as long as the process
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	secret, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	hook, err := standardwebhooks.NewWebhook(secret[:len(secret)-1])
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err == nil {
			err = hook.Verify(body, r.Header)
		}
		var event struct {
			Type string `json:"type"`
			Data struct {
				OperationID string `json:"operation_id"`
			} `json:"data"`
		}
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		if err != nil {
			fmt.Println("refused:", err)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Println(event.Data.OperationID, event.Type)
		w.WriteHeader(http.StatusNoContent)
	})}
	return server.Serve(listener)
}
