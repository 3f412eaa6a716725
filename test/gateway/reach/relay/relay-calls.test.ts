/** Relays that are of no use are remembered as such. */
import t from 'tap'
import { IDLE_RELAY_MS, RelayCalls, USELESS_RELAY_MS } from '../../../../gateway/reach/relay/relay-calls.ts'
import type { RelayWant } from '../../../../gateway/reach/relay/plan-relay-use.ts'
import { FakeNft } from '../../../../kernel/fake/fake-nft.ts'
import { parseAddress } from '../../../../model/addresses/addresses.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'

t.test('a relay that is silent counts as useless, also when it is asked no longer', async (t) => {
  const clock = new FakeClock()
  const openSocket = () => ({ send: () => undefined, probeTcp: () => () => undefined, close: () => undefined })
  const none = () => undefined
  const calls = new RelayCalls({ nft: new FakeNft(), clock, openSocket, onError: none, onChange: none, onDue: none })
  const relay = {
    ...{ cluster: 'oslo', endpoint: 'oslo.gw-lane0', identity: 'oslo' },
    address: parseAddress('203.0.113.1'),
  }
  const want: RelayWant = { key: 'roma', remoteLane: 0, identity: 'roma', relay }
  const own = { clusterset: 'alps', identity: 'paris', agree: () => Buffer.alloc(32) }
  const apply = (wants: readonly RelayWant[]) =>
    calls.apply(wants, { own, ports: new Map([[0, 4500]]) }, AbortSignal.timeout(10_000))
  await apply([want])
  calls.send()
  t.equal(calls.standing('roma', relay), 'good')
  await clock.advance(IDLE_RELAY_MS)
  calls.send()
  t.equal(calls.standing('roma', relay), 'useless')
  t.equal(calls.standing('bern', relay), 'good', 'for another link')
  await apply([])
  t.equal(calls.standing('roma', relay), 'useless')
  await clock.advance(USELESS_RELAY_MS)
  t.equal(calls.standing('roma', relay), 'good', 'it is tried again')
  calls.close()
})
