/** Refusals keep their reason on the wire, and brokers that name none, or one of a later release, are understood. */
import { Metadata } from '@grpc/grpc-js'
import t from 'tap'
import { RefusedError } from '../../protocol/broker-api.ts'
import { decodePublishReply } from '../../protocol/codec/messages-codec.ts'
import * as wire from '../../protocol/gen/broker.ts'
import { errorToStatus, statusToError } from '../../protocol/transport/status-codes.ts'

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
    const value = { sequence: 1, key, field: 'spec.publicKey', message: 'is taken', reason }
    return decodePublishReply(wire.PublishReply.encode({ message: { $case: 'refused', value } }).finish())
  }
  t.match(reply('PublicKeyTaken'), { reason: 'PublicKeyTaken', message: 'is taken' })
  t.match(reply(''), { reason: 'RefusedByBroker', message: 'is taken' })
  t.match(reply('MoonTooFull'), { reason: 'RefusedByBroker', message: 'is taken' })
})
