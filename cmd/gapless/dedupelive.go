package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/gaplesshq/gapless/engine/admin"
)

// liveStore is the store of a running process, behind its admin address.
type liveStore struct {
	base string
	http *http.Client
}

func newLiveStore(address string) (*liveStore, error) {
	base, err := adminURL(address)
	if err != nil {
		return nil, err
	}
	return &liveStore{base, &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}}, nil
}

// adminURL reads an address as --admin-addr takes it, or a URL.
func adminURL(address string) (string, error) {
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" {
			return "", usageError("--admin: %q is not a URL", address)
		}
		return strings.TrimSuffix(strings.TrimSuffix(u.String(), "/"), "/status"), nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return "", usageError("--admin: %q is not host:port or a URL", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() { // where it listens, not where it is reached
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

func (l *liveStore) close() error { l.http.CloseIdleConnections(); return nil }

// ask sends a request. The answer is the caller's to close.
func (l *liveStore) ask(ctx context.Context, method, path string, form url.Values) (*http.Response, error) {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(form.Encode())
	} else if len(form) > 0 {
		path += "?" + form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, l.base+path, body)
	if err != nil {
		return nil, usageError("--admin: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := l.http.Do(req)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, unreachable(fmt.Errorf("no answer from %s: %w. Is the process running, with --admin-addr? The store of one that was stopped is opened with --dir, or --group", l.base, errors.Unwrap(err)))
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what there is of it
	err = fmt.Errorf("%s: %s", l.base, explainedText(trimPrefix(string(bytes.TrimSpace(text)))))
	switch resp.StatusCode {
	case http.StatusBadRequest:
		return nil, &exitError{err, exitUsage}
	case http.StatusNotFound:
		return nil, unreachable(err)
	}
	return nil, err
}

func askFor[T any](ctx context.Context, l *liveStore, method, path string, form url.Values) (v T, err error) {
	resp, err := l.ask(ctx, method, path, form)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, fmt.Errorf("%s%s: %w", l.base, path, err)
	}
	return v, nil
}

func (s scopeOf) form(keys ...[]byte) url.Values {
	f := url.Values{}
	for name, v := range map[string]string{"scope": s.name, "topic": s.topic, "group": s.group} {
		if v != "" {
			f.Set(name, v)
		}
	}
	for _, k := range keys {
		f.Add("key_base64", base64.StdEncoding.EncodeToString(k))
	}
	return f
}

func (l *liveStore) stats(ctx context.Context) (admin.StoreStats, error) {
	return askFor[admin.StoreStats](ctx, l, http.MethodGet, "/dedupe/stats", nil)
}

func (l *liveStore) get(ctx context.Context, scope scopeOf, key []byte) (admin.StoreKey, error) {
	return askFor[admin.StoreKey](ctx, l, http.MethodGet, "/dedupe/key", scope.form(key))
}

func (l *liveStore) forget(ctx context.Context, scope scopeOf, keys [][]byte) (admin.Forgotten, error) {
	form := scope.form(keys...)
	if len(keys) == 0 {
		form.Set("all", "true")
	}
	return askFor[admin.Forgotten](ctx, l, http.MethodPost, "/dedupe/forget", form)
}

func (l *liveStore) compact(ctx context.Context) (admin.Compacted, error) {
	return askFor[admin.Compacted](ctx, l, http.MethodPost, "/dedupe/compact", nil)
}

func (l *liveStore) verify(ctx context.Context, progress func(admin.VerifyProgress)) (v admin.Verified, err error) {
	resp, err := l.ask(ctx, http.MethodPost, "/dedupe/verify", nil)
	if err != nil {
		return v, err
	}
	defer func() { _ = resp.Body.Close() }()
	for dec := json.NewDecoder(resp.Body); ; {
		var line struct {
			admin.VerifyProgress
			admin.VerifyEnd
		}
		if err := dec.Decode(&line); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return v, fmt.Errorf("the answer of %s ended before the result: %w", l.base, err)
		}
		switch {
		case line.Error != "":
			return v, fmt.Errorf("%s: %s", l.base, line.Error)
		case line.Result != nil:
			return *line.Result, nil
		}
		progress(line.VerifyProgress)
	}
}
