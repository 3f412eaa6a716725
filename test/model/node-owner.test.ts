import t from 'tap'
import { isNodeOfSite, ownedByNode, owningNode, sameOwners } from '../../model/node-owner.ts'
import type { Gateway, ObjectMeta } from '../../model/objects.ts'
import { gatewayObject, nodeObject } from '../support/objects/node-objects.ts'

const NODE = nodeObject('n1', { metadata: { uid: 'u1' } })

const gateway = (metadata: Omit<ObjectMeta, 'name'> = {}): Gateway => gatewayObject('n1', undefined, metadata)

t.test('what a node tells belongs to its Node', async (t) => {
  const owned = { ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'u1' }] }
  t.strictSame(ownedByNode(NODE), owned, 'and nothing waits for it to go')
  t.strictSame(ownedByNode(undefined), {})
  t.strictSame(ownedByNode({ ...NODE, metadata: { name: 'n1' } }), {}, 'not without its uid')
  t.equal(owningNode(gateway(owned)), 'n1')
  t.equal(owningNode(gateway()), undefined)
  t.equal(owningNode(gateway({ ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'u' }] })), undefined)
})

t.test('owners are the same in any order, and not for a Node that was made anew', async (t) => {
  const owner = (uid: string) => ({ apiVersion: 'v1', kind: 'Node', name: 'n1', uid })
  const of = (...uids: string[]): Gateway => gateway({ ownerReferences: uids.map(owner) })
  t.ok(sameOwners(of('a', 'b'), of('b', 'a')))
  t.ok(sameOwners(of(), gateway()))
  t.notOk(sameOwners(of('a'), of('b')))
  t.notOk(sameOwners(of('a'), of()))
})

t.test('a machine whose Node was removed is no node of the site; a site may do without Nodes', async (t) => {
  t.ok(isNodeOfSite('n1', [NODE]))
  t.ok(isNodeOfSite('n1', []))
  t.notOk(isNodeOfSite('n2', [NODE]))
})
