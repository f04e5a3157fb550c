package rls

import (
	"fmt"
	"strings"
	"unicode/utf8"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is extended
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// codec reads requests whose values are not UTF-8, too: a proxy passes on what a header of its client says, and
// a request that fails is not limited there.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// Unmarshal reads a message. In the value of an entry each byte that is not UTF-8 becomes \x and two hex digits.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if in, ok := v.(*rlsv3.RateLimitRequest); ok && err != nil {
		const descriptors, entries, value = 2, 1, 2
		if proto.Unmarshal(escape(data.Materialize(), descriptors, entries, value), in) == nil {
			return nil
		}
	}
	return err
}

// escape returns the message with valid values at a path of fields. What it cannot read it returns as it is.
func escape(message []byte, path ...protowire.Number) []byte {
	var out []byte
	for rest := message; len(rest) > 0; {
		number, kind, size := protowire.ConsumeField(rest)
		if size < 0 {
			return message
		}
		field := rest[:size]
		rest = rest[size:]
		if number != path[0] || kind != protowire.BytesType {
			out = append(out, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		value, _ := protowire.ConsumeBytes(field[tag:])
		if len(path) > 1 {
			value = escape(value, path[1:]...)
		} else if !utf8.Valid(value) {
			value = valid(value)
		}
		out = protowire.AppendBytes(append(out, field[:tag]...), value)
	}
	return out
}

// valid returns the value as text.
func valid(value []byte) []byte {
	var text strings.Builder
	for len(value) > 0 {
		r, size := utf8.DecodeRune(value)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&text, `\x%02x`, value[0])
		} else {
			text.Write(value[:size])
		}
		value = value[size:]
	}
	return []byte(text.String())
}
