/** The reason why pods do not run, as commands print it. */
import t from 'tap'
import { firstTrouble } from '../../../../cli/installation/pod-trouble.ts'

const NAMESPACE = 'sealane-system'

t.test("pods' trouble: what keeps them from running, in the order of their names", (t) => {
  const pod = (name: string, status: object) => ({ metadata: { name, namespace: NAMESPACE }, status })
  const waiting = (reason: string, more: object = {}) => ({
    containerStatuses: [{ state: { waiting: { reason, ...more } } }],
  })
  const rows: [string, object, string | undefined][] = [
    ['is made', waiting('ContainerCreating'), undefined],
    ['runs', { phase: 'Running', containerStatuses: [{ ready: true, state: { running: {} } }] }, undefined],
    ['image', waiting('ErrImagePull', { message: 'not\nfound' }), 'not found'],
    ['reason only', waiting('CrashLoopBackOff'), 'CrashLoopBackOff'],
    [
      'said before it ended',
      {
        containerStatuses: [
          { state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState: { terminated: { message: 'no TUN' } } },
        ],
      },
      'no TUN',
    ],
    ['failed', { phase: 'Failed', message: 'evicted' }, 'evicted'],
    ['no node', { conditions: [{ type: 'PodScheduled', status: 'False', message: '0/3 nodes' }] }, '0/3 nodes'],
    [
      'not ready',
      { containerStatuses: [{ ready: false, state: { running: {} } }] },
      'it runs but is not ready yet: see kubectl --namespace sealane-system logs a',
    ],
    ['too long', waiting('X', { message: 'y'.repeat(1000) }), 'y'.repeat(300)],
  ]
  for (const [name, status, want] of rows) {
    t.equal(firstTrouble([pod('a', status)])?.why, want === undefined ? undefined : `pod a: ${want}`, name)
  }
  t.strictSame(firstTrouble([pod('b', waiting('B')), pod('a', waiting('A'))]), { why: 'pod a: A' })
  for (const reason of ['ErrImagePull', 'ImagePullBackOff', 'ErrImageNeverPull', 'InvalidImageName']) {
    t.match(firstTrouble([pod('a', waiting(reason))]), { why: `pod a: ${reason}`, mend: /^use --image / })
  }
  const ended = (message: string): object => ({
    containerStatuses: [{ state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState: { terminated: { message } } }],
  })
  for (const reason of ['StateAccessDenied', 'StateForeign', 'StateTooOld', 'StateTooNew']) {
    const text = `{"level":"info"}\nsealane: etcd at h1:2379: no\nreason: ${reason}\n`
    const want = { why: `pod a: etcd at h1:2379: no reason: ${reason}`, mend: /^nothing was written to the store/ }
    t.match(firstTrouble([pod('a', ended(text))]), want, reason)
  }
  const passes = ended('sealane: etcd at h1:2379: no connection\nreason: StateUnreachable\n')
  t.strictSame(firstTrouble([pod('a', passes)]), {
    why: 'pod a: etcd at h1:2379: no connection reason: StateUnreachable',
  })
  const going = { ...pod('a', waiting('A')), metadata: { name: 'a', deletionTimestamp: '2026-01-01T00:00:00Z' } }
  t.equal(firstTrouble([going]), undefined, 'a pod that goes is no trouble')
  t.end()
})
