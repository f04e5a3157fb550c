package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// resolverTo returns a resolver to which all names are that IPv4 address.
func resolverTo(host netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		resolver, server := net.Pipe()
		go func() {
			defer server.Close()
			for answerName(server, host) == nil {
			}
		}()
		return resolver, nil
	}}
}

// answerName answers the next question on a connection.
func answerName(conn net.Conn, host netip.Addr) error {
	var length uint16
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
		return err
	}
	packet := make([]byte, length)
	if _, err := io.ReadFull(conn, packet); err != nil {
		return err
	}
	var message dnsmessage.Message
	if err := message.Unpack(packet); err != nil {
		return err
	}
	message.Response, message.Additionals = true, nil
	for _, asked := range message.Questions {
		if asked.Type == dnsmessage.TypeA {
			head := dnsmessage.ResourceHeader{Name: asked.Name, Class: dnsmessage.ClassINET}
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: host.As4()}})
		}
	}
	packet, err := message.AppendPack(make([]byte, 2, 512))
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(packet, uint16(len(packet)-2))
	_, err = conn.Write(packet)
	return err
}
