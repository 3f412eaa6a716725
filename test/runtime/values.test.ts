import fc from 'fast-check'
import t from 'tap'
import { formatDuration, formatHostPort, parseDuration, parseHostPort } from '../../runtime/flag-values.ts'
import { messageOf } from '../support/failure.ts'

t.test('durations', async (t) => {
  const good = { '500ms': 500, '10s': 10_000, '5m': 300_000, '24h': 86_400_000, '0s': 0, '1.5s': 1500 }
  for (const [text, ms] of Object.entries(good)) t.equal(parseDuration(text), ms, text)
  for (const text of ['', '5', 's', '-5s', '5 s', '5sec', '1e3s', '5s ', '1h30m', '٥s']) {
    t.equal(
      await messageOf(() => parseDuration(text, '--ttl')),
      `--ttl ${JSON.stringify(text)}: expected a duration such as 500ms, 10s, 5m or 24h`,
    )
  }
  t.equal(
    await messageOf(() => parseDuration('2s', '--ttl', { minMs: 60_000, maxMs: 86_400_000 })),
    '--ttl "2s": expected 1m to 24h',
  )
  t.equal(await messageOf(() => parseDuration('999999999h')), 'duration "999999999h": expected 0s to 8784h')
  fc.assert(fc.property(fc.integer({ min: 0, max: 3_000_000_000 }), (ms) => parseDuration(formatDuration(ms)) === ms))
})

t.test('host and port', async (t) => {
  const good = [
    { text: '10.0.0.1:53', want: { host: '10.0.0.1', port: 53 } },
    { text: 'broker.example.org:7443', want: { host: 'broker.example.org', port: 7443 } },
    { text: '[2001:db8::1]:53', want: { host: '2001:db8::1', port: 53 } },
  ]
  for (const { text, want } of good) {
    t.same(parseHostPort(text), want)
    t.equal(formatHostPort(want), text)
  }
  for (const text of ['', ':53', '10.0.0.1', '2001:db8::1:53', 'a b:1', '-x:1', '[::1:53']) {
    t.equal(
      await messageOf(() => parseHostPort(text, '--broker')),
      `--broker ${JSON.stringify(text)}: expected host:port such as 10.0.0.1:53 or [2001:db8::1]:53`,
    )
  }
  for (const text of ['h:0', 'h:65536', 'h:', 'h:1x', 'h:+1']) {
    t.equal(
      await messageOf(() => parseHostPort(text, '--broker')),
      `--broker ${JSON.stringify(text)}: expected a port from 1 to 65535`,
    )
  }
  t.equal(parseHostPort('h:0', 'x', true).port, 0)
})

t.test('parsers never throw anything but InvalidValueError', async () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      for (const parse of [parseDuration, parseHostPort]) {
        try {
          parse(text)
        } catch (error) {
          if ((error as Error).name !== 'InvalidValueError') return false
        }
      }
      return true
    }),
  )
})
