/**
 * Refusals keep their reason on the wire; refusals without a reason, or with one of a later release, are understood.
 */
import { Metadata } from '@grpc/grpc-js'
import t from 'tap'
import { RefusedError } from '../../protocol/broker-api.ts'
import { decodePublishReply } from '../../protocol/codec/messages-codec.ts'
import type { FailedCall } from '../../protocol/transport/broker-service.ts'
import * as wire from '../../protocol/gen/broker.ts'
import { errorToStatus, statusToError } from '../../protocol/transport/status-codes.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../support/eventually.ts'
import { authority, member, startSite } from './site.ts'

const SPENT = new RefusedError('TokenUsed', 'token', 'token: abc has been used already')

t.test('a refused call', async (t) => {
  t.equal(SPENT.code, 'Unauthenticated', 'the status is that of the reason')
  const sent = errorToStatus(SPENT)
  t.match(statusToError(sent, 'b'), { reason: 'TokenUsed', field: 'token', code: 'Unauthenticated' })
  for (const reason of [undefined, 'MoonTooFull', 'LaneUp']) {
    const metadata = new Metadata()
    metadata.set('sealane-field-bin', Buffer.from('token'))
    if (reason !== undefined) metadata.set('sealane-reason', reason)
    const got = statusToError({ ...sent, metadata }, 'b')
    t.match(got, { reason: 'RefusedByBroker', field: 'token', code: 'Unauthenticated', message: SPENT.message })
  }
})

t.test('a refused record', async (t) => {
  const reply = (reason: string): unknown => {
    const key = { kind: 'Endpoint', namespace: '', name: 'a' }
    const value = { sequence: 1, key, field: 'spec.publicKey', message: 'is taken', reason, kept: false }
    return decodePublishReply(wire.PublishReply.encode({ message: { $case: 'refused', value } }).finish())
  }
  t.match(reply('PublicKeyTaken'), { reason: 'PublicKeyTaken', message: 'is taken' })
  t.match(reply(''), { reason: 'RefusedByBroker', message: 'is taken' })
  t.match(reply('MoonTooFull'), { reason: 'RefusedByBroker', message: 'is taken' })
})

t.test('a member that is gone before its call is refused is that member all the same', async (t) => {
  const by = await authority('demo')
  const failed: FailedCall[] = []
  const registry = createMetrics('broker')
  const site = await startSite(by, { onFailed: (call) => failed.push(call), metrics: registry })
  t.teardown(() => site.close())
  const { promise: gone, resolve: letGo } = Promise.withResolvers<undefined>()
  let calls = 0
  site.api.renew = async () => {
    calls += 1
    await gone
    throw SPENT
  }
  const client = site.client(await member(by, 'milano'))
  const stop = new AbortController()
  const renewed = client.renew(Buffer.from('csr'), stop.signal).catch(() => undefined)
  await eventually(() => calls === 1)
  stop.abort()
  client.close()
  await renewed
  await eventually(async () => /^sealane_broker_connections\S* 0$/m.test(await registry.text()), { say: 'it is gone' })
  letGo(undefined)
  const [call] = await eventually(() => failed.length > 0 && failed)
  t.match(call, { method: 'renew', address: '127.0.0.1', peer: { cluster: 'milano' }, fingerprint: /^[0-9a-f]{64}$/ })
})
