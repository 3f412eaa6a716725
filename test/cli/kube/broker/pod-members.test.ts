/** Which replica of a broker answers the list of members, and which one is next when that replica does not answer. */
import t, { type Test } from 'tap'
import { podBroker } from '../../../../cli/broker/pod-broker.ts'
import { selectorLabels } from '../../../../install/values/names.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { KubeError } from '../../../../kubeapi/kube/kube-error.ts'
import type { MemberSummary } from '../../../../protocol/admin/admin-api.ts'
import { RefusedError } from '../../../../protocol/broker-api.ts'
import { messageOf } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'
import { dialSocket, servedAdmin } from '../../../support/served-admin.ts'

const { signal } = new AbortController()
const ANSWER = [{ id: 'c1' }] as unknown as readonly MemberSummary[]
const GOING = { deletionTimestamp: '2026-11-26T00:00:00Z' }

function replica(i: number, { ready = true, rest = {} }: { ready?: boolean; rest?: object } = {}): ManifestObject {
  const labels = selectorLabels('broker')
  const metadata = { name: `sealane-broker-${i}`, namespace: 'sealane-broker', labels, ...rest }
  const status = { conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] }
  return { apiVersion: 'v1', kind: 'Pod', metadata, status }
}

/**
 * Returns a broker whose replicas answer, except those with an error in `failing`, to which no connection can be
 * opened.
 */
async function hub(t: Test, pods: readonly ManifestObject[], failing: Readonly<Record<string, Error>> = {}) {
  const admin = new MemoryAdmin(pods)
  const asked: string[] = []
  const socket = await servedAdmin(t, {
    members: () => Promise.resolve(ANSWER),
    evict: () => Promise.reject(new RefusedError('MemberUnknown', 'cluster', 'no such member')),
  })
  admin.dial = ({ pod }) => {
    const replica = pod.replace('sealane-broker-', '')
    asked.push(replica)
    const error = failing[replica]
    return error === undefined ? dialSocket(socket) : Promise.reject(error)
  }
  return { asked, broker: podBroker(admin, { flags: '--context hub', signal }) }
}

const failed = (code: 'Unavailable' | 'NotFound' | 'Forbidden', status: number): KubeError =>
  new KubeError(`forward: ${status}`, { code, status, reason: '' })

t.test('the first that is ready and stays, or the next one', async (t) => {
  const three = [replica(0), replica(1), replica(2)]
  for (const [name, pods, failing, want] of [
    ['all are well', three, {}, '0'],
    ['one is not ready', [replica(0, { ready: false }), replica(1)], {}, '1'],
    ['one is being deleted', [replica(0, { rest: GOING }), replica(1)], {}, '1'],
    ['all are being deleted', [replica(0, { rest: GOING })], {}, '0'],
    ['a node has died', three, { 0: failed('Unavailable', 500) }, '0,1'],
    ['two have, and give no answer', three, { 0: failed('Unavailable', 0), 1: failed('Unavailable', 0) }, '0,1,2'],
    ['a pod has just gone', three, { 0: failed('NotFound', 404) }, '0,1'],
  ] as const) {
    const { asked, broker } = await hub(t, pods, failing)
    t.match(await broker.members(), [{ id: 'c1' }], name)
    t.equal(asked.join(), want, name)
  }
})

t.test('where the answer is no, no other replica is asked', async (t) => {
  const pods = [replica(0), replica(1)]
  const noRight = await hub(t, pods, { 0: failed('Forbidden', 403) })
  t.equal(
    await messageOf(noRight.broker.members()),
    'forward: 403: get and create pods/portforward in namespace sealane-broker are required',
  )
  t.equal(noRight.asked.join(), '0')
  const refused = await hub(t, pods)
  t.equal(
    await messageOf(refused.broker.evict({ cluster: 'c2', force: false })),
    'the broker of context "c1" of kubeconfig answered: no such member',
  )
  t.equal(refused.asked.join(), '0')
  const all = await hub(t, pods, { 0: failed('Unavailable', 0), 1: failed('Unavailable', 500) })
  t.equal(await messageOf(all.broker.members()), 'forward: 500', 'all fail: the error of the last one')
})

t.test('a change is asked of one replica only: it may have been made', async (t) => {
  const { asked, broker } = await hub(t, [replica(0), replica(1)], { 0: failed('Unavailable', 0) })
  t.equal(await messageOf(broker.evict({ cluster: 'c1', force: false })), 'forward: 0')
  t.equal(asked.join(), '0')
})
