/** There are never two leaders, and never none for long. */
import t, { type Test } from 'tap'
import type { KubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { eventually } from '../../support/eventually.ts'
import { silentProxy } from '../../support/silent-proxy.ts'
import { type FakeApiServer, fakeApiServer } from '../../support/fake-api-server.ts'
import { openFake } from './kube-site.ts'

/** The times are shorter than in production, in the same proportions. */
const TIMING = { name: 'agent', durationMs: 2000, renewWithinMs: 1400, retryMs: 300 }
/** A standby that waits for this lease to expire outlasts every test, and a pause of the machine does not expire it. */
const PATIENT = { ...TIMING, durationMs: 120_000, renewWithinMs: 60_000 }
const LEASE = { resource: 'coordination.k8s.io/v1/leases', apiVersion: 'coordination.k8s.io/v1', kind: 'Lease' }

/** The changes of leader in their order, as `+a`, `-a`. */
class Offices {
  readonly log: string[] = []
  readonly leading = new Set<string>()
  most = 0
  readonly #timing: typeof TIMING

  constructor(timing = TIMING) {
    this.#timing = timing
  }

  candidate(api: KubeApi, identity: string, signal: AbortSignal): Promise<void> {
    return api.elect(
      { ...this.#timing, identity },
      async (office) => {
        this.log.push(`+${identity}`)
        this.leading.add(identity)
        this.most = Math.max(this.most, this.leading.size)
        await new Promise<void>((resolve) => office.addEventListener('abort', () => resolve()))
        this.leading.delete(identity)
        this.log.push(`-${identity}`)
      },
      signal,
    )
  }
}

async function candidateBehindProxy(t: Test, server: FakeApiServer) {
  const proxy = await silentProxy(t, { host: '127.0.0.1', port: Number(new URL(server.url).port) })
  const { api, logger } = await openFake(t, server, {
    kubeconfig: server.kubeconfigAt(`https://127.0.0.1:${proxy.port}`),
  })
  return { api, proxy, logger }
}

/** A server on which `a` leads. */
async function oneLeader(t: Test) {
  const server = await fakeApiServer(t)
  const offices = new Offices(PATIENT)
  const stopping = new AbortController()
  const { api } = await openFake(t, server)
  const ran = offices.candidate(api, 'a', stopping.signal)
  await eventually(() => offices.leading.has('a'))
  const stop = (): Promise<void> => {
    stopping.abort()
    return ran
  }
  return { server, offices, stop }
}

t.test('a leader that stops gives the lease back, and the next one leads at once', async (t) => {
  const server = await fakeApiServer(t)
  const offices = new Offices(PATIENT)
  const [a, b] = [new AbortController(), new AbortController()]
  const { api: first } = await openFake(t, server)
  const { api: second } = await openFake(t, server)
  const ran = offices.candidate(first, 'a', a.signal)
  await eventually(() => offices.leading.has('a'))
  const other = offices.candidate(second, 'b', b.signal)
  await eventually(() => server.requests.filter((line) => line.startsWith('PUT')).length >= 3, { say: 'a renews' })
  t.same(offices.log, ['+a'])
  a.abort()
  await ran
  await eventually(() => offices.leading.has('b'), { deadlineMs: 20_000 })
  t.same(offices.log, ['+a', '-a', '+b'])
  b.abort()
  await other
  t.match(server.objects.get({ ...LEASE, namespace: 'sealane-system', name: 'agent' }), {
    spec: { holderIdentity: '' },
  })
})

t.test('a leader that stops in the middle of a renewal gives the lease back all the same', async (t) => {
  const { server, offices, stop } = await oneLeader(t)
  let renewals = 0
  server.fault = ({ method }) => (method === 'PUT' && renewals++ === 0 ? 'unheard' : undefined)
  await eventually(() => renewals === 1, { say: 'a renewal is under way, and the server has taken it' })
  await stop()
  t.same(offices.log, ['+a', '-a'])
  t.match(server.objects.get({ ...LEASE, namespace: 'sealane-system', name: 'agent' }), {
    spec: { holderIdentity: '' },
  })
})

t.test('a leader that cannot renew stops before another one starts', async (t) => {
  const server = await fakeApiServer(t)
  const offices = new Offices()
  const stop = new AbortController()
  const { api: cut, proxy, logger } = await candidateBehindProxy(t, server)
  const { api: fine } = await openFake(t, server)
  const all = [offices.candidate(cut, 'a', stop.signal)]
  await eventually(() => offices.leading.has('a'))
  all.push(offices.candidate(fine, 'b', stop.signal))
  await eventually(() => server.requests.filter((line) => line.startsWith('GET')).length >= 3, { say: 'b looks' })
  proxy.silence(true)
  await eventually(() => offices.leading.has('b'), { deadlineMs: 10_000 })
  t.same(offices.log, ['+a', '-a', '+b'])
  t.equal(offices.most, 1)
  t.ok(logger.messages('warn').includes('this process has lost its leadership'))
  stop.abort()
  await Promise.all(all)
})

t.test('a server that fails for less than the time to renew changes nothing', async (t) => {
  const { server, offices, stop } = await oneLeader(t)
  let failures = 0
  server.fault = ({ method }) => (method === 'PUT' && failures++ < 1 ? { status: 500 } : undefined)
  const before = server.requests.length
  await eventually(() => server.requests.length > before + 5)
  t.same(offices.log, ['+a'])
  await stop()
})

t.test('who is overruled stops at once, and stands again', async (t) => {
  const { server, offices, stop } = await oneLeader(t)
  const place = { ...LEASE, namespace: 'sealane-system', name: 'agent' }
  const spec = { holderIdentity: 'admin', leaseDurationSeconds: 1, renewTime: '2026-01-01T00:00:00.000000Z' }
  server.objects.put(place, { metadata: { name: 'agent' }, spec })
  await eventually(() => offices.log.join() === '+a,-a,+a', {
    say: 'stopped, and leading again when the other ran out',
  })
  await stop()
})

t.test('what the leader throws ends the candidacy, and the lease is given back', async (t) => {
  const server = await fakeApiServer(t)
  const { api } = await openFake(t, server)
  const lead = (): Promise<void> => Promise.reject(new Error('broken'))
  await t.rejects(api.elect({ ...TIMING, identity: 'a' }, lead, new AbortController().signal), {
    message: 'broken',
  })
  t.match(server.objects.get({ ...LEASE, namespace: 'sealane-system', name: 'agent' }), {
    spec: { holderIdentity: '' },
  })
})

t.test('close ends the candidacy and gives the lease back', async (t) => {
  const server = await fakeApiServer(t)
  const offices = new Offices(PATIENT)
  const { api } = await openFake(t, server)
  const ran = offices.candidate(api, 'a', new AbortController().signal)
  await eventually(() => offices.leading.has('a'))
  await api.close()
  await ran
  t.same(offices.log, ['+a', '-a'])
  t.match(server.objects.get({ ...LEASE, namespace: 'sealane-system', name: 'agent' }), {
    spec: { holderIdentity: '' },
  })
})
