package otlp

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Spans is what became of the spans that were made to be sent. Spans that wait are not
// among them yet.
type Spans struct {
	Sent         int64 // the collector took them
	QueueFull    int64 // dropped: too many were waiting
	ExportFailed int64 // dropped with the batch that they were in, of which all or a part was not taken
}

// tally counts spans, the waiting ones too.
type tally struct{ waiting, sent, full, failed atomic.Int64 }

func (t *tally) spans() Spans {
	return Spans{Sent: t.sent.Load(), QueueFull: t.full.Load(), ExportFailed: t.failed.Load()}
}

// checkSizes returns what is wrong with those of the environment that the SDK takes as they
// are: with 0 it has no room for a span, and below it panics. What is no number it leaves out.
func checkSizes() error {
	for _, name := range []string{"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"} {
		if size, err := strconv.Atoi(os.Getenv(name)); err == nil && size < 1 {
			return fmt.Errorf("otlp: %s is above 0", name)
		}
	}
	return nil
}

// maxWaiting returns how many spans may wait to be sent: as many as the SDK has room for.
func maxWaiting() int64 {
	if size, err := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE")); err == nil {
		return int64(size)
	}
	return sdktrace.DefaultMaxQueueSize
}

// queue is the SDK's batch processor behind a bound that is no larger than its own: the SDK
// does not report what it drops when it is full, so it never gets full.
type queue struct {
	sdktrace.SpanProcessor
	*tally
	most int64
}

// OnEnd queues the span to be sent, if there is room for it.
func (q queue) OnEnd(span sdktrace.ReadOnlySpan) {
	if !span.SpanContext().IsSampled() {
		return // it is not sent
	}
	if q.waiting.Add(1) > q.most {
		q.waiting.Add(-1)
		q.full.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(span)
}

// counted is a SpanExporter whose spans are counted.
type counted struct {
	sdktrace.SpanExporter
	*tally
}

// ExportSpans sends spans, which do not wait any more.
func (c counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	n := int64(len(spans))
	c.waiting.Add(-n)
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		c.failed.Add(n)
	} else {
		c.sent.Add(n)
	}
	return err
}
