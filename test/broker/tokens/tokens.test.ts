import t from 'tap'
import { messageOf } from '../../support/failure.ts'
import { facts, join_, startBroker } from '../support/harness.ts'

const MINUTE = 60_000

t.test('the life of a token', async (t) => {
  const { tokens, clock, broker, log } = await startBroker(t)
  const made = await tokens.create({ cluster: 'milano', ttlMs: MINUTE })
  t.match(made, { state: 'valid', usesLeft: 1, cluster: 'milano', usedBy: [], expiresAtMs: clock.now() + MINUTE })
  t.match(made.text, /^sealane1\./)
  await clock.advance(MINUTE)
  const second = await tokens.create({})
  t.same(
    (await tokens.list()).map((token) => [token.id, token.state]),
    [
      [second.id, 'valid'],
      [made.id, 'expired'],
    ],
  )
  t.equal((await tokens.revoke(second.id)).state, 'revoked')
  t.equal((await tokens.revoke(second.id)).state, 'revoked', 'twice is once')
  t.equal(await messageOf(tokens.revoke('nope')), 'token "nope": not known')
  await clock.advance(8 * 24 * 60 * MINUTE)
  await broker.tidy()
  t.same(await tokens.list(), [], 'a week later it is forgotten')
  t.equal(log.count('token'), 0)
})

t.test('only the hash is stored', async (t) => {
  const { tokens, log } = await startBroker(t)
  const { id, text } = await tokens.create({})
  await log.refresh()
  const stored = JSON.stringify(log.get('token', id))
  t.match(stored, /"hash":"[0-9a-f]{64}"/)
  const secret = (JSON.parse(Buffer.from(text.slice(9), 'base64url').subarray(0, -4).toString()) as { s: string }).s
  t.notOk(stored.includes(secret))
})

t.test('wishes that cannot be met', async (t) => {
  const { tokens } = await startBroker(t)
  t.equal(await messageOf(tokens.create({ ttlMs: 10 })), 'ttl 0.01 s: expected 1 second to 30 days')
  t.equal(await messageOf(tokens.create({ uses: 0 })), 'uses 0: expected 1 to 1000')
  t.equal(
    await messageOf(tokens.create({ cluster: 'Milano' })),
    'cluster "Milano": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -',
  )
})

t.test('the broker sees at once what the CLI did', async (t) => {
  const harness = await startBroker(t)
  const { text, id } = await harness.tokens.create({ uses: 5 })
  await join_(harness, 'milano', { token: text })
  await harness.tokens.revoke(id)
  t.equal(
    await messageOf(join_(harness, 'paris', { token: text, facts: facts(['10.50.0.0/16']) })),
    `token: ${id} was revoked at 2026-01-01T00:00:00Z: create a new one with "sealane token create"`,
  )
  t.match(await harness.tokens.list(), [{ state: 'revoked', usedBy: ['milano'], usesLeft: 4 }])
})
