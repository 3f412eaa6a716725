/** Which replica of a broker is asked how the members do, and who is asked where that one does not answer. */
import t from 'tap'
import { podBroker, podMembers } from '../../../../cli/broker/pod-broker.ts'
import { selectorLabels } from '../../../../install/values/names.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import type { CommandResult } from '../../../../kubeapi/kube/http/pod-exec.ts'
import { KubeError } from '../../../../kubeapi/kube/kube-error.ts'
import { messageOf } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'

const { signal } = new AbortController()
const ANSWER: CommandResult = { status: 0, stdout: '{"items":[{"id":"c1"}]}', stderr: '' }
const GOING = { deletionTimestamp: '2026-11-26T00:00:00Z' }

function replica(i: number, { ready = true, rest = {} }: { ready?: boolean; rest?: object } = {}): ManifestObject {
  const labels = selectorLabels('broker')
  const metadata = { name: `sealane-broker-${i}`, namespace: 'sealane-broker', labels, ...rest }
  const status = { conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] }
  return { apiVersion: 'v1', kind: 'Pod', metadata, status }
}

/** Each replica answers, but for those that fail as it says here. */
function hub(pods: readonly ManifestObject[], failing: Readonly<Record<string, Error | CommandResult>> = {}) {
  const admin = new MemoryAdmin(pods)
  const asked: string[] = []
  admin.run = ({ pod }) => {
    asked.push(pod.replace('sealane-broker-', ''))
    const what = failing[pod.replace('sealane-broker-', '')] ?? ANSWER
    return what instanceof Error ? Promise.reject(what) : Promise.resolve(what)
  }
  return { asked, members: podMembers(podBroker(admin, '--context hub', signal)) }
}

const failed = (code: 'Unavailable' | 'NotFound' | 'Forbidden', status: number): KubeError =>
  new KubeError(`exec: ${status}`, { code, status, reason: '' })

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
    ['a process was killed', three, { 0: { status: 137, stdout: '', stderr: '' } }, '0,1'],
  ] as const) {
    const { asked, members } = hub(pods, failing)
    t.match(await members.members(), [{ id: 'c1' }], name)
    t.equal(asked.join(), want, name)
  }
})

t.test('where the answer is no, nobody else is asked', async (t) => {
  const pods = [replica(0), replica(1)]
  for (const [name, failing, want] of [
    ['no right', { 0: failed('Forbidden', 403) }, 'exec: 403'],
    [
      'the command says no',
      { 0: { status: 1, stdout: '', stderr: 'sealane: no such clusterset\n' } },
      'the broker of context "c1" of kubeconfig says: no such clusterset',
    ],
  ] as const) {
    const { asked, members } = hub(pods, failing)
    t.equal(await messageOf(members.members()), want, name)
    t.equal(asked.join(), '0', name)
  }
  const all = hub(pods, { 0: failed('Unavailable', 0), 1: failed('Unavailable', 500) })
  t.equal(await messageOf(all.members.members()), 'exec: 500', 'all fail: what the last one says')
})

t.test('what changes something is asked once: it may have been done', async (t) => {
  const { asked, members } = hub([replica(0), replica(1)], { 0: failed('Unavailable', 0) })
  t.equal(await messageOf(members.evict({ cluster: 'c1', force: false })), 'exec: 0')
  t.equal(asked.join(), '0')
})
