/** What a node of a site may write at its hub: what is its own, and nothing else. */
import fc from 'fast-check'
import t from 'tap'
import { type AccessFacts, type NodeChange, accessProblem } from '../../../kubeapi/remote/plan-access.ts'
import type { StoredLease } from '../../../kubeapi/cluster-api.ts'
import type { KubeObject } from '../../../model/objects.ts'
import { heldBy, newLease } from '../../compliance/lease-store.ts'
import { gatewayObject } from '../../support/objects/node-objects.ts'
import { service, serviceExport, serviceImport } from '../../compliance/cluster-api.ts'

const FACTS: AccessFacts = { node: 'gw2', cluster: 'milano', nowMs: 100_000 }

const endpoint = (spec: { cluster?: string; node?: string; lane?: number } = {}, name?: string): KubeObject => {
  const { cluster = 'milano', node = 'gw2', lane = 0 } = spec
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Endpoint',
    metadata: { name: name ?? `${cluster}.${node}-lane${lane}` },
    spec: { cluster, node, lane },
  } as unknown as KubeObject
}

const owned = (kind: string, name: string): KubeObject =>
  gatewayObject('gw2', undefined, { ownerReferences: [{ apiVersion: 'v1', kind, name, uid: 'u' }] })

const apply = (object: KubeObject): NodeChange => ({ verb: 'apply', object })

t.test('a table of objects', async (t) => {
  const rows: readonly [string, NodeChange, boolean][] = [
    ['its Gateway', apply(gatewayObject('gw2')), true],
    ['its status', { verb: 'applyStatus', object: gatewayObject('gw2') }, true],
    ['removal of its Gateway', { verb: 'remove', kind: 'Gateway', name: 'gw2' }, true],
    ['removal of its RouteAgent', { verb: 'remove', kind: 'RouteAgent', name: 'gw2' }, true],
    ['its Gateway, owned by its Node', apply(owned('Node', 'gw2')), true],
    ['its Gateway, owned by another Node', apply(owned('Node', 'gw1')), false],
    ['its Gateway, owned by the Membership', apply(owned('Membership', 'self')), false],
    ["another node's Gateway", apply(gatewayObject('gw1')), false],
    ["another node's status", { verb: 'applyStatus', object: gatewayObject('gw1') }, false],
    ["removal of another node's Gateway", { verb: 'remove', kind: 'Gateway', name: 'gw1' }, false],
    ['its Endpoint', apply(endpoint()), true],
    ['its last lane', apply(endpoint({ lane: 7 })), true],
    ['a lane that is none', apply(endpoint({ lane: 8 })), false],
    ["another node's Endpoint", apply(endpoint({ node: 'gw1' })), false],
    ["another cluster's Endpoint", apply(endpoint({ cluster: 'paris' })), false],
    ["another node's Endpoint under its own name", apply(endpoint({ node: 'gw1' }, 'milano.gw2-lane0')), false],
    ['an Endpoint under the name of another lane', apply(endpoint({ lane: 1 }, 'milano.gw2-lane0')), false],
    ['a name that begins as its own', apply(endpoint({ node: 'gw2-lane0' })), false],
    ['removal of its Endpoint', { verb: 'remove', kind: 'Endpoint', name: 'milano.gw2-lane3' }, true],
    ["removal of another node's Endpoint", { verb: 'remove', kind: 'Endpoint', name: 'milano.gw1-lane3' }, false],
    ["removal of another cluster's Endpoint", { verb: 'remove', kind: 'Endpoint', name: 'paris.gw2-lane0' }, false],
    ['a Service', apply(service('web')), false],
    ['a ServiceImport', apply(serviceImport('web')), false],
    ['the status of a ServiceExport', { verb: 'applyStatus', object: serviceExport('web') }, false],
    ['removal of the Membership', { verb: 'remove', kind: 'Membership', name: 'self' }, false],
    ['removal of a Cluster', { verb: 'remove', kind: 'Cluster', name: 'milano' }, false],
    ['removal of a Lease', { verb: 'remove', kind: 'Lease', name: 'sealane-lane-0' }, false],
  ]
  for (const [what, change, may] of rows) t.equal(accessProblem(change, FACTS) === undefined, may, what)
  const before = { ...FACTS, cluster: undefined }
  t.ok(accessProblem(apply(endpoint()), before), 'no Endpoint before the site has joined')
})

t.test('a table of Leases', async (t) => {
  const held = (holder: string, sinceMs: number, annotations = {}): AccessFacts['lease'] => {
    const stored = { ...newLease(holder), metadata: { name: 'sealane-lane-0', annotations } }
    return { holder, changedMs: FACTS.nowMs - sinceMs, durationMs: 15_000, stored }
  }
  const offer = { 'sealane.io/handover': 'drain' }
  const rows: readonly [string, StoredLease, AccessFacts['lease'], boolean][] = [
    ['a new one', newLease('gw2'), undefined, true],
    ['a free one', newLease('gw2'), held('', 0), true],
    ['a renewal', newLease('gw2'), held('gw2', 5000), true],
    ['a release', heldBy(newLease('gw2'), ''), held('gw2', 5000), true],
    ['one that is offered', newLease('gw2'), held('gw1', 1000, offer), true],
    ['one that has lapsed', newLease('gw2'), held('gw1', 15_000), true],
    ['one that another node renews', newLease('gw2'), held('gw1', 14_999), false],
    ["the release of another node's", heldBy(newLease('gw2'), ''), held('gw1', 20_000), false],
    ['for another node', newLease('gw3'), undefined, false],
    ['for another node that has it', newLease('gw1'), held('gw1', 5000), false],
    ['of the agent', newLease('gw2', 'sealane-agent'), undefined, false],
  ]
  for (const [what, lease, present, may] of rows) {
    t.equal(accessProblem({ verb: 'writeLease', lease }, { ...FACTS, lease: present }) === undefined, may, what)
  }
})

t.test('whatever a node writes, it names the node', async () => {
  const names = fc.constantFrom('gw1', 'gw2', 'gw2-lane0', 'gw2.x', 'self', 'milano.gw1-lane0', 'milano.gw2-lane0')
  const kinds = fc.constantFrom('Gateway', 'RouteAgent', 'Endpoint', 'Node', 'Pod', 'Cluster', 'Lease', 'Membership')
  fc.assert(
    fc.property(names, kinds, (name, kind) => {
      const change = { verb: 'remove', kind, name } as NodeChange
      const may = accessProblem(change, FACTS) === undefined
      const isOwn = kind === 'Endpoint' ? /^milano\.gw2-lane[0-7]$/.test(name) : name === 'gw2'
      return !may || (isOwn && ['Gateway', 'RouteAgent', 'Endpoint'].includes(kind))
    }),
  )
})
