// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	gocmp "github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func (b *bed) sqs() *sqs.Client {
	cfg := b.AWSConfig()
	cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return sqs.NewFromConfig(cfg)
}

// bodies receives once and returns what was in the messages.
func bodies(t *testing.T, client *sqs.Client, in *sqs.ReceiveMessageInput) (texts, receipts []string) {
	t.Helper()
	out := must[*sqs.ReceiveMessageOutput](t)(client.ReceiveMessage(t.Context(), in))
	for _, m := range out.Messages {
		texts, receipts = append(texts, *m.Body), append(receipts, *m.ReceiptHandle)
	}
	return texts, receipts
}

func TestQueue(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	b := start(t, Options{Clock: clock, InterruptionQueue: "interruptions"})
	client := b.sqs()
	url := must[*sqs.GetQueueUrlOutput](t)(client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("interruptions")})).QueueUrl
	for i := range 12 {
		clock.Step(time.Millisecond)
		b.SendMessage(fmt.Sprint(i))
	}
	receive := &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10, VisibilityTimeout: 20}

	texts, receipts := bodies(t, client, receive)
	if diff := gocmp.Diff([]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, texts); diff != "" {
		t.Fatalf("first receipt (-want +got):\n%s", diff)
	}
	batch := &sqs.DeleteMessageBatchInput{QueueUrl: url}
	for i, receipt := range receipts[:9] {
		batch.Entries = append(batch.Entries, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: aws.String(receipt)})
	}
	batch.Entries = append(batch.Entries, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String("bad"), ReceiptHandle: aws.String("none of SQS's")})
	deleted := must[*sqs.DeleteMessageBatchOutput](t)(client.DeleteMessageBatch(t.Context(), batch))
	if len(deleted.Successful) != 9 || len(deleted.Failed) != 1 || *deleted.Failed[0].Code != "ReceiptHandleIsInvalid" {
		t.Errorf("batch deleted %d and failed for %d: %v", len(deleted.Successful), len(deleted.Failed), deleted.Failed)
	}
	if texts, receipts = bodies(t, client, receive); !gocmp.Equal(texts, []string{"10", "11"}) {
		t.Errorf("second receipt %q, want what was not in flight", texts)
	}
	if visible, inFlight := b.QueueDepth(); visible != 0 || inFlight != 3 {
		t.Errorf("%d visible and %d in flight, want 0 and 3", visible, inFlight)
	}
	for _, receipt := range receipts {
		for range 2 { // deleting what is gone succeeds
			if _, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: aws.String(receipt)}); err != nil {
				t.Fatal(err)
			}
		}
	}

	clock.Step(20 * time.Second)
	receive.MessageSystemAttributeNames = []sqstypes.MessageSystemAttributeName{"All"}
	again := must[*sqs.ReceiveMessageOutput](t)(client.ReceiveMessage(t.Context(), receive))
	if len(again.Messages) != 1 || *again.Messages[0].Body != "9" || again.Messages[0].Attributes["ApproximateReceiveCount"] != "2" {
		t.Fatalf("after the visibility timeout: %+v, want message 9 for the second time", again.Messages)
	}
	if sent := again.Messages[0].Attributes["SentTimestamp"]; sent != "1793491200010" {
		t.Errorf("SentTimestamp %s, want that of the sending in milliseconds", sent)
	}
	clock.Step(queueRetention)
	if texts, _ := bodies(t, client, receive); texts != nil {
		t.Errorf("received %q after the retention", texts)
	}
}

// A long poll returns with the first message, not at its end.
func TestLongPoll(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	b := start(t, Options{Clock: clock})
	client := b.sqs()
	tests := []struct {
		name  string
		while func()
		want  []string
	}{
		{"nothing comes", func() { clock.Step(20 * time.Second) }, nil},
		{"a message arrives", func() { b.SendMessage("late") }, []string{"late"}},
		{"a message comes back", func() { clock.Step(5 * time.Second) }, []string{"late"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := make(chan []string, 1)
			go func() {
				out, err := client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
					QueueUrl: aws.String(b.QueueURL()), WaitTimeSeconds: 20, VisibilityTimeout: 5,
				})
				var texts []string
				if err == nil {
					for _, m := range out.Messages {
						texts = append(texts, *m.Body)
					}
				}
				got <- texts
			}()
			for clock.Waiters() < 2 { // the agenda's timer and the poll's
				select {
				case texts := <-got:
					t.Fatalf("received %q without waiting", texts)
				default:
				}
			}
			test.while()
			if texts := <-got; !gocmp.Equal(texts, test.want) {
				t.Errorf("received %q, want %q", texts, test.want)
			}
		})
	}
}

func TestQueueErrors(t *testing.T) {
	b := start(t, Options{})
	client, ctx := b.sqs(), t.Context()
	url := aws.String(b.QueueURL())
	other := aws.String(b.URL() + "/111122223333/other")
	tests := []struct {
		name string
		call func() error
		want string
	}{
		{"unknown name", func() error {
			_, err := client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("other")})
			if _, ok := errors.AsType[*sqstypes.QueueDoesNotExist](err); !ok {
				t.Errorf("%v is not the SDK's own type", err)
			}
			return err
		}, "AWS.SimpleQueueService.NonExistentQueue"},
		{"unknown URL", func() error {
			_, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: other})
			return err
		}, "AWS.SimpleQueueService.NonExistentQueue"},
		{"too many", func() error {
			_, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 11})
			return err
		}, "InvalidParameterValue"},
		{"bad receipt", func() error {
			_, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: aws.String("x")})
			return err
		}, "ReceiptHandleIsInvalid"},
		{"empty batch", func() error {
			_, err := client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: []sqstypes.DeleteMessageBatchRequestEntry{}})
			return err
		}, "AWS.SimpleQueueService.EmptyBatchRequest"},
		{"visible again", func() error {
			b.SendMessage("x")
			_, receipts := bodies(t, client, &sqs.ReceiveMessageInput{QueueUrl: url})
			in := &sqs.ChangeMessageVisibilityInput{QueueUrl: url, ReceiptHandle: aws.String(receipts[0])}
			if _, err := client.ChangeMessageVisibility(ctx, in); err != nil {
				t.Error(err)
			}
			_, err := client.ChangeMessageVisibility(ctx, in)
			return err
		}, "AWS.SimpleQueueService.MessageNotInflight"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { wantCode(t, test.call(), test.want) })
	}
}

func TestQueueAttributes(t *testing.T) {
	b := start(t, Options{})
	client, url := b.sqs(), aws.String(b.QueueURL())
	if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("by a client")}); err != nil {
		t.Fatal(err)
	}
	get := func(names ...sqstypes.QueueAttributeName) map[string]string {
		out := must[*sqs.GetQueueAttributesOutput](t)(client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: url, AttributeNames: names}))
		return out.Attributes
	}
	want := map[string]string{"ApproximateNumberOfMessages": "1", "QueueArn": "arn:aws:sqs:us-east-1:111122223333:demo"}
	if diff := gocmp.Diff(want, get("ApproximateNumberOfMessages", "QueueArn")); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if got := get("All")["VisibilityTimeout"]; got != "30" {
		t.Errorf("VisibilityTimeout %q, want 30", got)
	}
	if _, err := client.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: url}); err != nil {
		t.Fatal(err)
	}
	if got := get("ApproximateNumberOfMessages")["ApproximateNumberOfMessages"]; got != "0" {
		t.Errorf("%s messages after the purge", got)
	}
}
