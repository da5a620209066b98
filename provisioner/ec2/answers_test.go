// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// recorded is an EC2 that gives one recorded answer to each action and keeps the requests.
type recorded struct {
	mu       sync.Mutex
	answers  map[string][]string // by action: the next one is given, the last one again and again
	requests []url.Values
}

// failure is an answer with EC2's error code.
func failure(code, message string) string {
	return fmt.Sprintf("!<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>r</RequestID></Response>", code, message)
}

func (r *recorded) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := req.ParseForm(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	action := req.Form.Get("Action")
	r.requests = append(r.requests, req.Form)
	list := r.answers[action]
	if len(list) == 0 {
		list = []string{failure("InvalidAction", "no answer to "+action)}
	}
	if len(list) > 1 {
		r.answers[action] = list[1:]
	}
	text := list[0]
	if text[0] == '!' {
		text = text[1:]
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = w.Write([]byte(text)) // the client notices an answer that is cut short
}

// sent returns the requests of an action.
func (r *recorded) sent(action string) []url.Values {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []url.Values
	for _, v := range r.requests {
		if v.Get("Action") == action {
			out = append(out, v)
		}
	}
	return out
}

// replay returns a client of a server that gives recorded answers.
func replay(t *testing.T, answers map[string][]string, opts Options) (*Client, *recorded) {
	t.Helper()
	r := &recorded{answers: answers}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	opts.ClusterName = "demo"
	return New(aws.Config{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL), Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}, opts), r
}
