// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"cmp"
	"crypto/md5"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	// queueVisibility is the queue's visibility timeout, SQS's default.
	queueVisibility = 30 * time.Second
	// queueRetention is how long a message is kept: 5 minutes, as in the template
	// that Karpenter's users create their queue from.
	queueRetention = 5 * time.Minute

	maxMessageBytes = 1 << 20
	badParameter    = "InvalidParameterValue"
)

// queue is the one SQS queue of the account; Emulator.mu guards it.
type queue struct {
	name     string
	created  time.Time
	messages []*message
	changed  chan struct{} // closed and replaced when a message may have become visible
}

// message is one message of the queue.
type message struct {
	id, body    string
	sent, first time.Time
	visible     time.Time // from then on it can be received
	received    int
}

func newQueue(name string, now time.Time) *queue {
	return &queue{name: name, created: now, changed: make(chan struct{})}
}

func (q *queue) put(m *message) {
	q.messages = append(q.messages, m)
	q.wake()
}

func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// expire drops what is older than the retention; messages are in order of sending.
func (q *queue) expire(now time.Time) {
	keep := slices.IndexFunc(q.messages, func(m *message) bool { return now.Sub(m.sent) < queueRetention })
	if keep < 0 {
		keep = len(q.messages)
	}
	q.messages = slices.Delete(q.messages, 0, keep)
}

// counts returns how many messages can be received and how many are in flight.
func (q *queue) counts(now time.Time) (visible, inFlight int) {
	q.expire(now)
	for _, m := range q.messages {
		if m.visible.After(now) {
			inFlight++
		} else {
			visible++
		}
	}
	return visible, inFlight
}

func (q *queue) find(id string) *message {
	i := slices.IndexFunc(q.messages, func(m *message) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return q.messages[i]
}

// QueueName is the name of the account's queue.
func (e *Emulator) QueueName() string { return e.opts.InterruptionQueue }

// QueueURL is the URL of the account's queue, as GetQueueUrl answers it.
func (e *Emulator) QueueURL() string {
	return e.URL() + "/" + e.opts.AccountID + "/" + e.opts.InterruptionQueue
}

// SendMessage puts any text on the queue: a message nobody expects, or several
// at once. It returns the message's id.
func (e *Emulator) SendMessage(body string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.enqueue(body)
}

// QueueDepth returns how many messages of the queue can be received and how many
// are in flight: received, not deleted, and not visible again yet.
func (e *Emulator) QueueDepth() (visible, inFlight int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.queue.counts(e.clock.Now())
}

// enqueue puts a message on the queue. e.mu is held.
func (e *Emulator) enqueue(body string) string {
	now := e.clock.Now()
	e.queue.expire(now)
	m := &message{id: e.world.newUUID("message"), body: body, sent: now, visible: now}
	e.queue.put(m)
	return m.id
}

func (e *Emulator) sqsHandlers() map[string]handler {
	return map[string]handler{
		"ChangeMessageVisibility": e.changeMessageVisibility,
		"DeleteMessage":           e.deleteMessage,
		"DeleteMessageBatch":      e.deleteMessageBatch,
		"GetQueueAttributes":      e.getQueueAttributes,
		"GetQueueUrl":             e.getQueueURL,
		"PurgeQueue":              e.purgeQueue,
		"ReceiveMessage":          e.receiveMessage,
		"SendMessage":             e.sendMessage,
	}
}

// sqsError is an error as SQS answers it: clients of its older protocol know it
// under another name, which goes into a header.
func sqsError(code, queryCode, format string, args ...any) *apiError {
	err := invalid("com.amazonaws.sqs#"+code, format, args...)
	err.queryCode = cmp.Or(queryCode, code)
	return err
}

func noSuchQueue() *apiError {
	return sqsError("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
}

// onQueue decodes a request and checks that it is for the queue there is.
func (e *Emulator) onQueue(c *call, in any, url func() *string) error {
	if err := jsonInto(c, in); err != nil {
		return err
	}
	if aws.ToString(url()) == "" {
		return sqsError("MissingParameter", "", "The request must contain the parameter QueueUrl.")
	}
	// Only the path counts: behind a port forward the host is another.
	if !strings.HasSuffix(*url(), "/"+e.opts.AccountID+"/"+e.queue.name) {
		return noSuchQueue()
	}
	return nil
}

func (e *Emulator) getQueueURL(c *call) (any, error) {
	var in sqs.GetQueueUrlInput
	if err := jsonInto(c, &in); err != nil {
		return nil, err
	}
	owner := aws.ToString(in.QueueOwnerAWSAccountId)
	if aws.ToString(in.QueueName) != e.queue.name || owner != "" && owner != e.opts.AccountID {
		return nil, noSuchQueue()
	}
	return map[string]string{"QueueUrl": e.QueueURL()}, nil
}

func (e *Emulator) getQueueAttributes(c *call) (any, error) {
	var in sqs.GetQueueAttributesInput
	if err := e.onQueue(c, &in, func() *string { return in.QueueUrl }); err != nil {
		return nil, err
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	visible, inFlight := e.queue.counts(e.clock.Now())
	created := strconv.FormatInt(e.queue.created.Unix(), 10)
	all := map[string]string{
		"QueueArn":                              e.arn("sqs", e.queue.name),
		"ApproximateNumberOfMessages":           strconv.Itoa(visible),
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(inFlight),
		"ApproximateNumberOfMessagesDelayed":    "0",
		"CreatedTimestamp":                      created, "LastModifiedTimestamp": created,
		"VisibilityTimeout": seconds(queueVisibility), "MessageRetentionPeriod": seconds(queueRetention),
		"MaximumMessageSize": strconv.Itoa(maxMessageBytes), "DelaySeconds": "0", "ReceiveMessageWaitTimeSeconds": "0",
		"SqsManagedSseEnabled": "true",
	}
	out := map[string]string{}
	for _, name := range in.AttributeNames {
		value, ok := all[string(name)]
		switch {
		case name == sqstypes.QueueAttributeNameAll:
			maps.Copy(out, all)
		case ok:
			out[string(name)] = value
		case !slices.Contains(name.Values(), name):
			return nil, sqsError("InvalidAttributeName", "", "Unknown Attribute %s.", name)
		}
	}
	return map[string]any{"Attributes": out}, nil
}

func (e *Emulator) sendMessage(c *call) (any, error) {
	var in sqs.SendMessageInput
	if err := e.onQueue(c, &in, func() *string { return in.QueueUrl }); err != nil {
		return nil, err
	}
	body := aws.ToString(in.MessageBody)
	switch {
	case body == "":
		return nil, sqsError("MissingParameter", "", "The request must contain the parameter MessageBody.")
	case len(body) > maxMessageBytes:
		return nil, sqsError(badParameter, "", "One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", maxMessageBytes)
	}
	return map[string]string{"MessageId": e.enqueue(body), "MD5OfMessageBody": bodyDigest(body)}, nil
}

func (e *Emulator) purgeQueue(c *call) (any, error) {
	var in sqs.PurgeQueueInput
	if err := e.onQueue(c, &in, func() *string { return in.QueueUrl }); err != nil {
		return nil, err
	}
	e.queue.messages = nil
	return struct{}{}, nil
}

// bodyDigest is the checksum that SQS's clients verify a body with.
func bodyDigest(body string) string {
	sum := md5.Sum([]byte(body)) //nolint:gosec // the protocol's checksum, no secret
	return hex.EncodeToString(sum[:])
}
