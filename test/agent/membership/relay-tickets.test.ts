/** What the agent keeps for the gateways: relays on port 443 as the broker states them, and the cluster's ticket. */
import t, { type Test } from 'tap'
import { AGENT_LOOP } from '../../../agent/loop/config.ts'
import { agentMetrics } from '../../../agent/loop/metrics.ts'
import { MembershipChanges } from '../../../kubeapi/membership.ts'
import { type NoteRelays, RelayTicketLoop } from '../../../agent/membership/relay-ticket-loop.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { type RelayNotice, RELAYS_ANNOTATION, decodeRelayNotice } from '../../../model/lanes/relay-address.ts'
import { MEMBERSHIP_NAME } from '../../../model/objects.ts'
import { type MemberIdentity, decodeMemberIdentity } from '../../../protocol/membership/member-files.ts'
import { TICKET_VALIDITY_MS, openTicket } from '../../../protocol/tickets/tickets.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { Listeners } from '../../../reconcile/listeners.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { identityParts } from '../../support/identity-parts.ts'
import { endpointObject, membershipObject } from '../../support/objects/cluster-objects.ts'
import { until } from '../until.ts'

const RELAY = 'wss://relay.example/'
const gatewayKey = (n: number): string => Buffer.alloc(32, n).toString('base64')

interface Story {
  readonly api: MemoryApi
  readonly clock: FakeClock
  /** The broker states these. */
  readonly state: (addresses: readonly string[]) => void
  readonly notice: () => RelayNotice
  /** Identities on the ticket, or why a relay refuses it now. */
  readonly holds: () => unknown
  readonly start: (stated?: readonly string[], note?: NoteRelays) => () => Promise<void>
  identity: MemberIdentity | undefined
}

async function story(t: Test): Promise<Story> {
  const clock = new FakeClock()
  const api = new MemoryApi({ clock })
  const kept = decodeMemberIdentity(await identityParts('demo', 'milano', clock.now()), (part) => part)
  if (kept === undefined) throw new Error('no identity')
  await api.apply({ ...membershipObject(), metadata: { name: MEMBERSHIP_NAME, annotations: { own: 'stays' } } })
  const heard = new Listeners()
  let stated: readonly string[] | undefined
  const notice = (): RelayNotice =>
    decodeRelayNotice(api.get('Membership', MEMBERSHIP_NAME)?.metadata.annotations?.[RELAYS_ANNOTATION])
  const self: Story = {
    ...{ api, clock, notice, identity: kept },
    state: (addresses) => {
      stated = addresses
      heard.call()
    },
    holds: () => {
      const { ticket } = notice()
      if (ticket === undefined) return undefined
      const opened = openTicket(Buffer.from(ticket, 'base64'), kept.caBundle, clock.now())
      return 'problem' in opened ? opened.problem : opened.holder.identities
    },
    start: (at, note) => {
      stated = at
      const stop = new AbortController()
      const deps = {
        ...{ api, clock, logger: new CapturingLogger(), metrics: agentMetrics(createMetrics('agent')) },
        stated: { get: () => stated, onChange: (listener: () => void) => heard.add(listener) },
        note,
        changes: new MembershipChanges(api),
      }
      const init = { own: 'milano', identity: { read: () => Promise.resolve(self.identity) }, loop: AGENT_LOOP }
      const running = new RelayTicketLoop(deps, init).run(stop.signal)
      const end = (): Promise<void> => {
        stop.abort()
        return running
      }
      t.teardown(end)
      return end
    },
  }
  return self
}

/** Waits while the clock goes on by as little as loops wait between rounds. */
async function settled(t: Test, { clock }: Story, read: () => unknown, want: unknown, say: string): Promise<void> {
  for (let i = 0; i < 20; i++) {
    await clock.advance(5)
    await new Promise((resolve) => setImmediate(resolve))
    if (JSON.stringify(read()) === JSON.stringify(want)) break
  }
  await until(t, read, want, say)
}

t.test('the ticket names the gateways of this cluster, present and announced, and is renewed', async (t) => {
  const one = await story(t)
  const { api, clock } = one
  one.start()
  await api.apply(endpointObject({ cluster: 'milano', publicKey: gatewayKey(1), nextPublicKey: gatewayKey(2) }))
  await api.apply(endpointObject({ cluster: 'oslo', publicKey: gatewayKey(9) }))
  await settled(t, one, one.notice, { addresses: [] }, 'without relays, nothing is signed')
  one.state([RELAY])
  await settled(t, one, one.holds, [gatewayKey(1), gatewayKey(2)], 'a ticket of the own gateways')
  t.same(one.notice().addresses, [RELAY])
  const annotations = api.get('Membership', MEMBERSHIP_NAME)?.metadata.annotations
  t.equal(annotations?.['own'], 'stays', 'other annotations stay')

  const first = one.notice().ticket
  await api.apply(endpointObject({ cluster: 'milano', node: 'gw2', lane: 1, publicKey: gatewayKey(3) }))
  await settled(t, one, one.holds, [gatewayKey(1), gatewayKey(2), gatewayKey(3)], 'a new gateway')
  const second = one.notice().ticket
  t.not(second, first)
  await clock.advance(TICKET_VALIDITY_MS / 4 + 60_000)
  await settled(t, one, () => one.notice().ticket !== second, true, 'renewed after a quarter of its life')
  t.same(one.holds(), [gatewayKey(1), gatewayKey(2), gatewayKey(3)])
  await clock.advance(2 * TICKET_VALIDITY_MS)
  await settled(t, one, one.holds, [gatewayKey(1), gatewayKey(2), gatewayKey(3)], 'and for as long as the agent runs')
})

t.test('relays stay while no broker states any, and go when one states none', async (t) => {
  const one = await story(t)
  await one.api.apply(endpointObject({ cluster: 'milano', publicKey: gatewayKey(1) }))
  const stop = one.start([RELAY])
  await settled(t, one, one.holds, [gatewayKey(1)], 'stated')
  const { ticket } = one.notice()
  await stop()
  one.start(undefined)
  await settled(t, one, () => one.notice().addresses, [RELAY], 'after a restart without a broker')
  await settled(t, one, () => one.notice().ticket !== ticket, true, 'with a ticket of the new process')
  one.state([])
  const { api } = one
  const keys = (): unknown => Object.keys(api.get('Membership', MEMBERSHIP_NAME)?.metadata.annotations ?? {})
  await settled(t, one, keys, ['own'], 'the annotation is gone')
})

t.test('without an identity there are addresses and no ticket; one that is leaving gets neither', async (t) => {
  const one = await story(t)
  const { identity } = one
  one.identity = undefined
  await one.api.apply(endpointObject({ cluster: 'milano', publicKey: gatewayKey(1) }))
  one.start([RELAY])
  await settled(t, one, one.notice, { addresses: [RELAY] }, 'addresses alone')
  one.identity = identity
  one.state([RELAY])
  await settled(t, one, one.holds, [gatewayKey(1)], 'once it is there')

  const other = await story(t)
  await other.api.apply(membershipObject({ phase: 'leaving' }))
  await other.api.apply(endpointObject({ cluster: 'milano', publicKey: gatewayKey(1) }))
  other.start([RELAY])
  await settled(t, other, () => other.api.get('Membership', MEMBERSHIP_NAME)?.spec.phase, 'leaving', 'left alone')
  t.same(other.notice(), { addresses: [] })
})

t.test('in a Kubernetes cluster the annotation alone is written', async (t) => {
  const one = await story(t)
  const { api } = one
  const noted: (string | undefined)[] = []
  const before = api.get('Membership', MEMBERSHIP_NAME)
  one.start([], (notice) => {
    noted.push(notice)
    return Promise.resolve()
  })
  one.state([RELAY])
  await settled(t, one, () => decodeRelayNotice(noted.at(-1)), { addresses: [RELAY] }, 'it is patched')
  t.same(api.get('Membership', MEMBERSHIP_NAME), before)
})

t.test('two changes at one time: neither takes back the other', async (t) => {
  const { api } = await story(t)
  const changes = new MembershipChanges(api)
  const { signal } = new AbortController()
  await Promise.all([
    changes.apply((latest) => ({ ...latest, spec: { ...latest.spec, accessDefault: 'allow' } }), signal),
    changes.apply((latest) => ({ ...latest, metadata: { ...latest.metadata, annotations: { one: '1' } } }), signal),
    changes.apply((latest) => ({ ...latest, spec: { ...latest.spec, exposure: 'pods' } }), signal),
  ])
  const { spec, metadata } = api.get('Membership', MEMBERSHIP_NAME) ?? {}
  t.match(spec, { accessDefault: 'allow', exposure: 'pods' })
  t.same(metadata?.annotations, { one: '1' })
  const order: string[] = []
  const patch = changes.inTurn(async () => {
    await new Promise((resolve) => setImmediate(resolve))
    order.push('patch')
  }, signal)
  await Promise.all([patch, changes.write(() => void order.push('write'), signal)])
  t.same(order, ['patch', 'write'], 'a patch of some fields is not overtaken')
  await api.apply(membershipObject({ phase: 'leaving' }))
  await changes.apply((latest) => ({ ...latest, spec: { ...latest.spec, exposure: 'exports' } }), signal)
  t.match(api.get('Membership', MEMBERSHIP_NAME)?.spec, { phase: 'leaving' }, 'a concurrent leave stays')
})
