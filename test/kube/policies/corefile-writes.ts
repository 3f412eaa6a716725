/** What the agent may write to the ConfigMaps of the cluster's DNS, within the Role that a join gives it. */
import type { Test } from 'tap'
import { clusterDnsAccess } from '../../../install/policies/member-access.ts'
import { addForwardBlock, formatForwardBlock } from '../../../model/cluster-dns/forward-block.ts'
import { KUBEADM, NODE_LOCAL } from '../../support/corefiles.ts'
import type { ControlPlane } from '../support/control-plane.ts'
import { pathOf } from '../support/object-path.ts'
import { refusedWithin } from '../support/refusals.ts'

const SYSTEM = 'sealane-system'
const BLOCK = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }
const eventuallyRefused = refusedWithin(60_000)

export async function corefileWrites(t: Test, cluster: ControlPlane): Promise<void> {
  const { api } = cluster
  const agent = await cluster.apiAs({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
  t.teardown(() => agent.close())
  const place = { namespace: 'shop', name: 'corefiles' }
  const path = '/api/v1/namespaces/shop/configmaps/corefiles'
  const map = (data: Readonly<Record<string, string>>) => {
    return { apiVersion: 'v1', kind: 'ConfigMap', metadata: place, data }
  }
  for (const object of clusterDnsAccess([place], SYSTEM)) await api.apply(pathOf(object), object)
  const before = { Corefile: KUBEADM, cache: NODE_LOCAL, open: KUBEADM.trimEnd(), 'x.override': KUBEADM }
  await api.post('/api/v1/namespaces/shop/configmaps', map(before))
  const write = (change: Readonly<Record<string, string>>): Promise<unknown> =>
    agent.put(`${path}?dryRun=All`, map({ ...before, ...change }))
  const block = `${formatForwardBlock(BLOCK, { ports: ['53'], binds: [] })}\n`
  const bound = `${formatForwardBlock(BLOCK, { ports: ['53'], binds: ['bind 10.0.0.1'] })}\n`
  const refusal = /the agent only adds Sealane's block to a ConfigMap/
  await eventuallyRefused(t, () => write({ Corefile: `${KUBEADM}.:53 {\n}\n` }), refusal, 'another block')
  for (const [title, change] of [
    ['a bind line of its own', { Corefile: KUBEADM + bound }],
    ['on the line of another', { open: KUBEADM.trimEnd() + block }],
    ['into a server block', { 'x.override': addForwardBlock(KUBEADM, BLOCK) }],
    ['two', { Corefile: KUBEADM + block + block }],
    ['a host name', { Corefile: KUBEADM + block.replace('10.43.0.99', 'evil.example') }],
    ['a quote', { Corefile: KUBEADM + bound.replace('10.0.0.1', '"') }],
    ['a key of another name', { other: block }],
  ] as const) {
    await t.rejects(write(change), refusal, title)
  }
  for (const key of ['Corefile', 'cache', 'open'] as const) await write({ [key]: addForwardBlock(before[key], BLOCK) })
  await write({ 'sealane.server': bound })
  await api.delete(path)
}
