/**
 * Members of the last release learn of a rotation only through their renewals, and the rotation does not cut them off.
 */
import t from 'tap'
import { openAuthorityStore } from '../../support/broker-store.ts'
import type { AuthorityStatus } from '../../../protocol/admin/admin-api.ts'
import { LoopbackBroker } from '../../cli/loopback-broker.ts'
import { eventually } from '../../support/eventually.ts'
import { messageOf } from '../../support/failure.ts'
import { aSlice, anExport } from '../support/harness.ts'
import { LinkedMember } from '../support/linked-member.ts'
import { TlsMember } from '../support/tls-member.ts'

t.setTimeout(120_000)
const PATIENCE = { deadlineMs: 30_000, intervalMs: 100 }

t.test('the rotation goes on when they renew, and they work all the while', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const store = await openAuthorityStore(broker.state, broker.clock)
  t.teardown(() => store.close())
  const milano = await LinkedMember.join(t, await broker.token(), 'milano')
  // As in the last release, the watch of this member does not ask for news of authorities.
  const paris = await TlsMember.join(t, broker.state, 'paris')
  const until = (isSo: (status: AuthorityStatus) => boolean, say: string): Promise<boolean> =>
    eventually(async () => isSo(await store.status()), { ...PATIENCE, say })
  let published = 0
  const flows = async (): Promise<void> => {
    published += 1
    const address = `10.42.1.${published}`
    milano.publish(anExport('web'), aSlice('web', address))
    const seen = (): boolean =>
      JSON.stringify(paris.replica.records.get('milano/EndpointSlice/shop/web-1')?.body ?? '').includes(`"${address}"`)
    await eventually(seen, { ...PATIENCE, say: 'paris sees it' })
  }
  await flows()

  await store.rotate({ force: false })
  const onlyParis = ({ waitsFor }: AuthorityStatus): boolean => waitsFor.members.map(({ id }) => id).join() === 'paris'
  await until(onlyParis, 'milano has it')
  const { members, waitsFor } = await store.status()
  t.match(
    members.find(({ id }) => id === 'paris'),
    { follows: false, knowsNext: false, uses: 'current' },
  )
  t.match(waitsFor.members[0]?.why, /it renews on its own schedule, because it runs an earlier release/)
  await flows()
  await paris.renew()
  await until(({ phase }) => phase === 'switched', 'it signs')
  await flows()
  await until(onlyParis, 'milano uses it')
  t.match(await messageOf(store.finish({ force: false })), /paris uses a certificate of the old authority/)
  await paris.renew()
  await until(({ waitsFor }) => waitsFor.members.length === 0, 'paris uses it')
  await flows()
  t.match(await store.finish({ force: false }), { phase: 'steady', repeated: false })
  await flows()
  await paris.renew()
  await flows()
  t.strictSame(milano.refusals, [])
  t.notMatch(broker.logger.messages('error').join('\n'), /./, 'nothing went wrong at the broker')
})
