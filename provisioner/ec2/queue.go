// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// receiveMost is SQS's limit of messages in one answer and of receipts in one deletion.
	receiveMost = 10
	// receiveWait is the longest a receive call may wait for a message, in seconds (SQS's limit).
	receiveWait = 20
	// hidden is how long a received message is kept from other receivers, in seconds. What is not deleted by then is
	// delivered again.
	hidden = 20
)

// Message is one message of a queue as one receiver got it.
type Message struct {
	ID, Body string
	// Receipt deletes this delivery of the message.
	Receipt string
	// Sent is when the message came into the queue.
	Sent time.Time
	// Receives counts deliveries, this one included.
	Receives int
}

// Queue is an SQS queue.
type Queue struct {
	sqs *sqs.Client
	url string
}

// Queue finds the queue of that name in the client's account and region.
func (c *Client) Queue(ctx context.Context, name string) (*Queue, error) {
	out, err := c.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(name)})
	if err != nil {
		return nil, wrap(err, "looking for SQS queue %q", name)
	}
	return &Queue{sqs: c.sqs, url: aws.ToString(out.QueueUrl)}, nil
}

// Receive returns up to ten messages as soon as there is one, none if there is none for twenty seconds.
func (q *Queue) Receive(ctx context.Context) ([]Message, error) {
	out, err := q.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(q.url), MaxNumberOfMessages: receiveMost, WaitTimeSeconds: receiveWait, VisibilityTimeout: hidden,
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{
			sqstypes.MessageSystemAttributeNameSentTimestamp, sqstypes.MessageSystemAttributeNameApproximateReceiveCount,
		},
	})
	if err != nil {
		return nil, wrap(err, "receiving from SQS queue %q", q.url)
	}
	messages := make([]Message, 0, len(out.Messages))
	for _, m := range out.Messages {
		messages = append(messages, Message{
			ID: aws.ToString(m.MessageId), Body: aws.ToString(m.Body), Receipt: aws.ToString(m.ReceiptHandle),
			Sent:     sentAt(m.Attributes[string(sqstypes.MessageSystemAttributeNameSentTimestamp)]),
			Receives: receives(m.Attributes[string(sqstypes.MessageSystemAttributeNameApproximateReceiveCount)]),
		})
	}
	return messages, nil
}

// sentAt reads a time in milliseconds since 1970.
func sentAt(text string) time.Time {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

func receives(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	return n
}

// Delete deletes deliveries by their receipts. A message whose deletion fails is delivered again; the error names how many.
func (q *Queue) Delete(ctx context.Context, receipts []string) error {
	var errs []error
	for batch := range slices.Chunk(receipts, receiveMost) {
		entries := make([]sqstypes.DeleteMessageBatchRequestEntry, len(batch))
		for i, r := range batch {
			entries[i] = sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(r)}
		}
		out, err := q.sqs.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(q.url), Entries: entries})
		switch {
		case err != nil:
			errs = append(errs, wrap(err, "deleting from SQS queue %q", q.url))
		case len(out.Failed) > 0:
			f := out.Failed[0]
			kind, code := capacity.Unavailable, aws.ToString(f.Code)
			if f.SenderFault {
				kind = cmp.Or(kindOf(code, 0), capacity.Invalid)
			}
			errs = append(errs, &capacity.Error{Kind: kind, Code: code, Err: fmt.Errorf("deleting from SQS queue %q: %d of %d messages stay: %s: %s",
				q.url, len(out.Failed), len(batch), code, aws.ToString(f.Message))})
		}
	}
	return errors.Join(errs...)
}
