/** A cluster repeats a join whose answer is late, and the broker may process either request first. */
import t from 'tap'
import { createKey } from '../../../protocol/identity/keys.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { messageOf } from '../../support/failure.ts'
import { join_, startBroker } from '../support/harness.ts'

t.test('the certificate of either request may be shown', async (t) => {
  const harness = await startBroker(t)
  const { text } = await harness.tokens.create({})
  const csr = await createCsr(createKey())
  const joins: Awaited<ReturnType<typeof join_>>[] = []
  for (let i = 0; i < 4; i += 1) joins.push(await join_(harness, 'milano', { token: text, csr }))
  const renew = async (at: number) => harness.broker.renew(joins[at]!.peer, await createCsr(createKey()))
  for (const at of [0, 0, 2, 2]) await renew(at)
  // Once a later certificate is used, the earlier ones are only valid for the overlap.
  t.match(await messageOf(renew(0)), /certificate \S+ of cluster "milano" was replaced at/)
  await join_(harness, 'milano', { token: text, csr })
  await renew(2)
  await harness.clock.advance(6 * 60_000)
  await renew(2)
  await renew(3)

  // An operator who asks for a new identity gets one.
  const { text: anew } = await harness.tokens.rekey({ cluster: 'milano' })
  const rekeyed = await join_(harness, 'milano', { token: anew, csr })
  t.match(await messageOf(renew(3)), /certificate \S+ of cluster "milano" was replaced/)
  await harness.broker.renew(rekeyed.peer, csr)
})

t.test('however often it is asked, few are kept', async (t) => {
  const harness = await startBroker(t)
  const { text } = await harness.tokens.create({})
  const csr = await createCsr(createKey())
  const count = (): number => harness.log.get('member', 'milano')?.certificates.length ?? 0
  for (let i = 0; i < 20 && count() < 8; i += 1) await join_(harness, 'milano', { token: text, csr })
  const first = harness.log.get('member', 'milano')?.certificates[0]
  // The broker limits the rate of repeated requests.
  await harness.clock.advance(60_000)
  for (let i = 0; i < 3; i += 1) await join_(harness, 'milano', { token: text, csr })
  t.equal(count(), 8)
  t.same(harness.log.get('member', 'milano')?.certificates[0], first, 'the one in use stays')
})
