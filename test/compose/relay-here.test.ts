/** Where members reach a relay on the port of a broker. */
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { relayAddresses } from '../../compose/broker/serve.ts'
import { relayPin } from '../../compose/relay/relay.ts'

t.test('the addresses of the broker, with the pin of the relay', async (t) => {
  const pin = 'ab'.repeat(32)
  const rows: readonly (readonly [advertised: readonly string[], relays: readonly string[]])[] = [
    [['broker.example.org:443'], [`wss://broker.example.org/#${pin}`]],
    [
      ['192.0.2.1:7443', '[2001:db8::1]:443'],
      [`wss://192.0.2.1:7443/#${pin}`, `wss://[2001:db8::1]/#${pin}`],
    ],
    [['a.example:1', 'a.example:1'], [`wss://a.example:1/#${pin}`]],
    [['a:1', 'b:1', 'c:1', 'd:1', 'e:1'], ['a', 'b', 'c', 'd'].map((host) => `wss://${host}:1/#${pin}`)],
    [[], []],
  ]
  for (const [advertised, relays] of rows) t.strictSame(relayAddresses(advertised, pin), relays)
})

t.test('the key of the relay lasts, and is private', async (t) => {
  const state = mkdtempSync(join(tmpdir(), 'sealane-relay-here-'))
  t.teardown(() => rmSync(state, { recursive: true, force: true }))
  const pin = await relayPin(state)
  t.match(pin, /^[0-9a-f]{64}$/)
  t.equal(await relayPin(state), pin)
  t.equal(statSync(join(state, 'relay.key')).mode & 0o077, 0)
})
