import t from 'tap'
import { applyClusterDns } from '../../../cli/cluster-dns/apply-cluster-dns.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { refOf, titleOf, type ObjectRef } from '../../../kubeapi/kube/kinds.ts'
import type { ClusterDnsClient, DnsObject } from '../../../cli/cluster-dns/dns-change.ts'
import { planClusterDns } from '../../../cli/cluster-dns/plan-cluster-dns.ts'
import { KUBEADM, SUBMARINER } from '../../support/corefiles.ts'
import { configMap } from './objects.ts'

const OPTIONS = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }
const { signal } = new AbortController()
const plan = (present: readonly DnsObject[]): ReturnType<typeof planClusterDns> =>
  planClusterDns('coredns', present, OPTIONS)

/**
 * An API server that holds a few objects and refuses a stale write. Each function in `between` runs once, before one
 * write.
 */
class FakeClient implements ClusterDnsClient {
  readonly objects = new Map<string, DnsObject>()
  readonly restarted: string[] = []
  readonly #between: (() => void)[]

  constructor(objects: readonly DnsObject[], between: (() => void)[] = []) {
    for (const object of objects) this.objects.set(titleOf(refOf(object)), object)
    this.#between = between
  }

  async get(ref: ObjectRef): Promise<DnsObject | undefined> {
    return this.objects.get(titleOf(ref))
  }

  async replace({ object, before, after }: Parameters<ClusterDnsClient['replace']>[0]): Promise<boolean> {
    this.#between.shift()?.()
    const name = titleOf(object)
    if (this.objects.get(name) !== before) return false
    if (after === undefined) this.objects.delete(name)
    else this.objects.set(name, after)
    return true
  }

  async restart(workload: ObjectRef): Promise<void> {
    if (workload.name === 'gone') throw new ClusterApiError('NotFound', 'there is no Deployment kube-system/gone')
    this.restarted.push(titleOf(workload))
  }
}

t.test('reads, writes, and restarts where it must', async (t) => {
  const client = new FakeClient([configMap('coredns', { Corefile: KUBEADM.replace('    reload\n', '') })])
  const result = await applyClusterDns(client, 'coredns', plan, signal)
  t.equal(result.plan.changes.length, 1)
  t.same(result.toRestart, [])
  t.same(client.restarted, ['Deployment kube-system/coredns'])
  t.same((await applyClusterDns(client, 'coredns', plan, signal)).plan.changes, [])
  t.equal(client.restarted.length, 1)
})

t.test('what somebody else wrote meanwhile is kept', async (t) => {
  const theirs = configMap('coredns', { Corefile: `${KUBEADM}example.org {\n    whoami\n}\n` })
  const client = new FakeClient(
    [configMap('coredns', { Corefile: KUBEADM })],
    [() => client.objects.set('ConfigMap kube-system/coredns', theirs)],
  )
  await applyClusterDns(client, 'coredns', plan, signal)
  t.match(client.objects.get('ConfigMap kube-system/coredns')?.data?.['Corefile'], /example.org \{[^]*sealane begin/)
})

t.test('a fight is given up, and a problem changes nothing', async (t) => {
  const client: ClusterDnsClient = {
    get: async (ref) =>
      ref.name === 'coredns' && ref.kind === 'ConfigMap' ? configMap('coredns', { Corefile: KUBEADM }) : undefined,
    replace: async () => false,
  }
  await t.rejects(applyClusterDns(client, 'coredns', plan, signal), {
    name: 'UserError',
    message: /changed the settings of the cluster DNS during each attempt/,
  })
  const taken = new FakeClient([configMap('coredns', { Corefile: SUBMARINER })])
  const result = await applyClusterDns(taken, 'coredns', plan, signal)
  t.equal(result.plan.problems[0]?.kind, 'conflict')
  t.equal(taken.objects.get('ConfigMap kube-system/coredns')?.data?.['Corefile'], SUBMARINER)
})

t.test('a workload that is not there is left to the user', async (t) => {
  const map = configMap('coredns', { Corefile: '. {\n}\n' })
  const client = new FakeClient([map])
  const result = await applyClusterDns(
    client,
    'coredns',
    (present) => {
      const planned = plan(present)
      const workload = { apiVersion: 'apps/v1', kind: 'Deployment', namespace: 'kube-system', name: 'gone' }
      return {
        ...planned,
        changes: planned.changes.map((change) => ({ ...change, effect: { how: 'restart', workload } })),
      }
    },
    signal,
  )
  t.same(result.toRestart.map(titleOf), ['Deployment kube-system/gone'])
})

t.test('without a way to restart, it says what to restart', async (t) => {
  const fake = new FakeClient([configMap('coredns', { Corefile: '. {\n}\n' })])
  const result = await applyClusterDns(
    { get: (ref) => fake.get(ref), replace: (change) => fake.replace(change) },
    'coredns',
    plan,
    signal,
  )
  t.same(result.toRestart.map(titleOf), ['Deployment kube-system/coredns'])
})
