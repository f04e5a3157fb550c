package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	limiterredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// redisContenders are libraries of Go on Redis.
func redisContenders(p Programs, redisVersion string) []Contender {
	list := []Contender{
		{Name: "redis_rate, GCRA", Version: versionOf("github.com/go-redis/redis_rate/v10"), Promise: Bucket, Start: onRedis(p, redisRate)},
		{Name: "throttled, GCRA", Version: versionOf("github.com/throttled/throttled/v2"), Promise: Bucket, Start: onRedis(p, throttledGCRA)},
		{Name: "ulule/limiter", Version: versionOf("github.com/ulule/limiter/v3"), Promise: Anchored, Start: onRedis(p, ulule)},
		{
			Name: "httprate-redis, two windows", Promise: Aligned, Start: onRedis(p, twoWindows),
			Version: versionOf("github.com/go-chi/httprate-redis") + ", httprate " + versionOf("github.com/go-chi/httprate"),
		},
		{Name: "sorted set, by a Lua script", Version: "the league's own", Promise: Sliding, Start: onRedis(p, sortedSet)},
	}
	for i := range list {
		list[i].Where = "Redis " + redisVersion
		if p.Redis == "" {
			list[i].Where, list[i].Missing = "Redis", "install redis-server, or name it with -redis"
		}
	}
	return list
}

// onRedis starts instances of a library, each with connections of its own, as many as it has callers.
func onRedis(p Programs, instanceOf func(client *redis.Client, limits []Limit) (Instance, error)) start {
	return closing(func(ctx context.Context, limits []Limit, c *closers) (*Fleet, error) {
		addr, memory, err := startRedis(ctx, p, c)
		if err != nil {
			return nil, err
		}
		f := &Fleet{Memory: memory, Buffers: true}
		for range instances {
			client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: callers / instances})
			c.add(client.Close)
			instance, err := instanceOf(client, limits)
			if err != nil {
				return nil, err
			}
			f.Instances = append(f.Instances, instance)
		}
		return f, nil
	})
}

func redisRate(client *redis.Client, _ []Limit) (Instance, error) {
	limiter := redis_rate.NewLimiter(client)
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		result, err := limiter.Allow(ctx, key(l, feature), redis_rate.Limit{Rate: int(l.N), Burst: int(l.N), Period: l.Window})
		if err != nil {
			return Answer{}, err
		}
		return Answer{Allowed: result.Allowed > 0, RetryAfter: result.RetryAfter}, nil
	}), nil
}

func throttledGCRA(client *redis.Client, limits []Limit) (Instance, error) {
	store, err := goredisstore.NewCtx(client, "")
	if err != nil {
		return nil, err
	}
	limiters := map[string]*throttled.GCRARateLimiterCtx{}
	for _, l := range limits {
		quota := throttled.RateQuota{MaxRate: throttled.PerDuration(int(l.N), l.Window), MaxBurst: int(l.N) - 1}
		if limiters[l.Name], err = throttled.NewGCRARateLimiterCtx(store, quota); err != nil {
			return nil, err
		}
	}
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		limited, result, err := limiters[l.Name].RateLimitCtx(ctx, key(l, feature), 1)
		return Answer{Allowed: !limited, RetryAfter: result.RetryAfter}, err
	}), nil
}

func ulule(client *redis.Client, limits []Limit) (Instance, error) {
	store, err := limiterredis.NewStore(client)
	if err != nil {
		return nil, err
	}
	limiters := map[string]*limiter.Limiter{}
	for _, l := range limits {
		limiters[l.Name] = limiter.New(store, limiter.Rate{Period: l.Window, Limit: l.N})
	}
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		result, err := limiters[l.Name].Get(ctx, key(l, feature))
		if err != nil {
			return Answer{}, err
		}
		return Answer{Allowed: !result.Reached, RetryAfter: max(time.Until(time.Unix(result.Reset, 0)), 0)}, nil
	}), nil
}

// twoWindows asks the middleware of httprate, as a handler does.
func twoWindows(client *redis.Client, limits []Limit) (Instance, error) {
	limiters := map[string]*httprate.RateLimiter{}
	for _, l := range limits {
		counter, err := httprateredis.NewRedisLimitCounter(&httprateredis.Config{Client: client})
		if err != nil {
			return nil, err
		}
		limiters[l.Name] = httprate.NewRateLimiter(int(l.N), l.Window, httprate.WithLimitCounter(counter))
	}
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
		if err != nil {
			return Answer{}, err
		}
		recorder := httptest.NewRecorder()
		if !limiters[l.Name].OnLimit(recorder, request, key(l, feature)) {
			return Answer{Allowed: true}, nil
		}
		seconds, err := strconv.Atoi(recorder.Header().Get("Retry-After"))
		if err != nil {
			return Answer{}, fmt.Errorf("httprate: %s", recorder.Body)
		}
		return Answer{RetryAfter: time.Duration(seconds) * time.Second}, nil
	}), nil
}

// slidingLog keeps the microsecond of each admitted hit in a sorted set, and decides in Redis.
var slidingLog = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local window = tonumber(ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now - window)
if redis.call('ZCARD', KEYS[1]) < tonumber(ARGV[2]) then
	redis.call('ZADD', KEYS[1], now, ARGV[3])
	redis.call('PEXPIRE', KEYS[1], window / 1000)
	return -1
end
return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] + window - now
`)

func sortedSet(client *redis.Client, _ []Limit) (Instance, error) {
	return instanceFunc(func(ctx context.Context, l Limit, feature string) (Answer, error) {
		wait, err := slidingLog.Run(ctx, client, []string{key(l, feature)}, l.Window.Microseconds(), l.N, unique()).Int64()
		if err != nil {
			return Answer{}, err
		}
		return Answer{Allowed: wait < 0, RetryAfter: time.Duration(max(wait, 0)) * time.Microsecond}, nil
	}), nil
}

func key(l Limit, feature string) string { return l.Name + ":" + feature }
