// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// SQS's bounds.
const (
	maxReceived   = 10
	maxBatch      = 10
	maxWait       = 20 * time.Second
	maxVisibility = 12 * time.Hour
)

// receivedMessage is a message as ReceiveMessage answers it.
type receivedMessage struct {
	MessageID     string `json:"MessageId"`
	ReceiptHandle string
	MD5OfBody     string
	Body          string
	Attributes    map[string]string `json:",omitempty"`
}

// receiveMessage answers visible messages in the order of their sending; without
// any it waits as long as the request says.
func (e *Emulator) receiveMessage(c *call) (any, error) {
	// The protocol's omitted numbers mean the queue's defaults, zero ones zero.
	var in struct {
		sqs.ReceiveMessageInput
		MaxNumberOfMessages, VisibilityTimeout, WaitTimeSeconds *int32
		AttributeNames                                          []string // the older name of MessageSystemAttributeNames
	}
	if err := e.onQueue(c, &in, func() *string { return in.QueueUrl }); err != nil {
		return nil, err
	}
	most, wait, hide := 1, time.Duration(0), queueVisibility
	if in.MaxNumberOfMessages != nil {
		most = int(*in.MaxNumberOfMessages)
	}
	if in.WaitTimeSeconds != nil {
		wait = time.Duration(*in.WaitTimeSeconds) * time.Second
	}
	if in.VisibilityTimeout != nil {
		hide = time.Duration(*in.VisibilityTimeout) * time.Second
	}
	switch {
	case most < 1 || most > maxReceived:
		return nil, sqsError(badParameter, "", "Value %d for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.", most)
	case wait < 0 || wait > maxWait:
		return nil, sqsError(badParameter, "", "Value %d for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.", wait/time.Second)
	case hide < 0 || hide > maxVisibility:
		return nil, sqsError(badParameter, "", "Value %d for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.", hide/time.Second)
	}
	now := e.clock.Now()
	e.queue.expire(now)
	wanted := slices.Concat(in.AttributeNames, names(in.MessageSystemAttributeNames))
	out := e.queue.take(now, most, hide, wanted, e.opts.AccountID)
	if deadline := c.at.Add(wait); len(out) == 0 && now.Before(deadline) {
		c.wait = &waiting{changed: e.queue.changed, until: e.queue.nextVisible(deadline)}
	}
	if len(out) == 0 {
		return struct{}{}, nil
	}
	return map[string]any{"Messages": out}, nil
}

func names[T ~string](values []T) []string {
	out, _ := texts(values)
	return out
}

// take receives up to most visible messages and hides them.
func (q *queue) take(now time.Time, most int, hide time.Duration, attributes []string, account string) []receivedMessage {
	var out []receivedMessage
	for _, m := range q.messages {
		if len(out) == most {
			break
		}
		if m.visible.After(now) {
			continue
		}
		if m.received++; m.received == 1 {
			m.first = now
		}
		m.visible = now.Add(hide)
		out = append(out, receivedMessage{
			MessageID: m.id, ReceiptHandle: m.receipt(), MD5OfBody: bodyDigest(m.body), Body: m.body,
			Attributes: m.attributes(attributes, account),
		})
	}
	return out
}

// nextVisible is when the first hidden message comes back, at most deadline.
func (q *queue) nextVisible(deadline time.Time) time.Time {
	for _, m := range q.messages {
		if m.visible.Before(deadline) {
			deadline = m.visible
		}
	}
	return deadline
}

func (m *message) attributes(wanted []string, account string) map[string]string {
	millis := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	all := map[string]string{
		"SenderId": account, "SentTimestamp": millis(m.sent),
		"ApproximateReceiveCount": strconv.Itoa(m.received), "ApproximateFirstReceiveTimestamp": millis(m.first),
	}
	if slices.Contains(wanted, "All") {
		return all
	}
	for name := range all {
		if !slices.Contains(wanted, name) {
			delete(all, name)
		}
	}
	return all
}

// receipt is the handle of the message's last receipt.
func (m *message) receipt() string {
	return base64.StdEncoding.EncodeToString([]byte(m.id + "#" + strconv.Itoa(m.received)))
}

// receiptOf finds the message of a handle. A message that is gone is no error:
// deleting twice succeeds, as in SQS.
func (q *queue) receiptOf(handle *string) (*message, error) {
	raw, err := base64.StdEncoding.DecodeString(aws.ToString(handle))
	id, receipt, ok := strings.Cut(string(raw), "#")
	if _, bad := strconv.Atoi(receipt); err != nil || !ok || bad != nil {
		return nil, sqsError("ReceiptHandleIsInvalid", "", "The input receipt handle is invalid.")
	}
	return q.find(id), nil
}

func (q *queue) remove(m *message) {
	q.messages = slices.DeleteFunc(q.messages, func(o *message) bool { return o == m })
}

func (e *Emulator) deleteMessage(c *call) (any, error) {
	var in sqs.DeleteMessageInput
	if err := e.onQueue(c, &in, func() *string { return in.QueueUrl }); err != nil {
		return nil, err
	}
	m, err := e.queue.receiptOf(in.ReceiptHandle)
	if err != nil {
		return nil, err
	}
	e.queue.remove(m)
	return struct{}{}, nil
}

// batchFailure is one entry of a batch that failed while others may not have.
type batchFailure struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

func (e *Emulator) deleteMessageBatch(c *call) (any, error) {
	var in sqs.DeleteMessageBatchInput
	if err := e.onQueue(c, &in, func() *string { return in.QueueUrl }); err != nil {
		return nil, err
	}
	if err := checkBatch(in.Entries); err != nil {
		return nil, err
	}
	out := struct {
		Successful []map[string]string
		Failed     []batchFailure
	}{[]map[string]string{}, []batchFailure{}}
	for _, entry := range in.Entries {
		m, err := e.queue.receiptOf(entry.ReceiptHandle)
		if err != nil {
			out.Failed = append(out.Failed, batchFailure{
				ID: *entry.Id, Code: "ReceiptHandleIsInvalid", Message: asAPIError(err).message, SenderFault: true,
			})
			continue
		}
		e.queue.remove(m)
		out.Successful = append(out.Successful, map[string]string{"Id": *entry.Id})
	}
	return out, nil
}

func checkBatch(entries []sqstypes.DeleteMessageBatchRequestEntry) error {
	switch n := len(entries); {
	case n == 0:
		return sqsError("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", "There should be at least one DeleteMessageBatchRequestEntry in the request.")
	case n > maxBatch:
		return sqsError("TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "Maximum number of entries per request are %d. You have sent %d.", maxBatch, n)
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		id := aws.ToString(entry.Id)
		switch {
		case id == "":
			return sqsError("MissingParameter", "", "The request must contain the parameter Id.")
		case seen[id]:
			return sqsError("BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
		seen[id] = true
	}
	return nil
}

func (e *Emulator) changeMessageVisibility(c *call) (any, error) {
	var in sqs.ChangeMessageVisibilityInput
	if err := e.onQueue(c, &in, func() *string { return in.QueueUrl }); err != nil {
		return nil, err
	}
	hide := time.Duration(in.VisibilityTimeout) * time.Second
	if hide < 0 || hide > maxVisibility {
		return nil, sqsError(badParameter, "", "Value %d for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.", in.VisibilityTimeout)
	}
	m, err := e.queue.receiptOf(in.ReceiptHandle)
	if err != nil {
		return nil, err
	}
	now := e.clock.Now()
	if m == nil || !m.visible.After(now) {
		return nil, sqsError("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", "The specified message isn't in flight.")
	}
	m.visible = now.Add(hide)
	e.queue.wake() // whoever waits for it waits for another time now
	return struct{}{}, nil
}
