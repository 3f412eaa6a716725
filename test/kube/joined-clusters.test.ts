/**
 * Three clusters that a user has joined, and stories that only read, or have namespaces of their own. The story of
 * agents that die comes last.
 */
import t from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { agentTakeover } from './joined/agent-takeover.ts'
import { MARK_FLAGS, demandedMarks } from './joined/demanded-marks.ts'
import { derivedIngress } from './joined/derived-ingress.ts'
import { EXPLAINED, explained } from './joined/explained.ts'
import { exporterInformed } from './joined/exporter-informed.ts'
import { mcsStandard } from './joined/mcs-standard.ts'
import { verified } from './joined/verified.ts'
import { type JoinedClusters, startJoinedClusters } from './support/joined-clusters.ts'
import { removeNamespaces } from './support/remove-namespaces.ts'
import { type Story, chosenStories } from './support/stories.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { FLAT } from './support/two-clusters.ts'

t.setTimeout(1_500_000)

const ROWS = [...FLAT, { name: 'c3', podCIDR: '10.62.0.0/16', serviceCIDR: '10.63.0.0/16', nodes: ['c3n1'] }]

interface NamespacedStory {
  readonly run: Story<JoinedClusters>
  /** All namespaces that the story makes. */
  readonly namespaces: readonly string[]
}

const STORIES: Readonly<Record<string, NamespacedStory>> = {
  'exporter-informed': { run: exporterInformed, namespaces: ['store', 'monitoring'] },
  'mcs-standard': { run: mcsStandard, namespaces: ['shop', 'kinds', 'north'] },
  'demanded-marks': { run: demandedMarks, namespaces: ['marked'] },
  'derived-ingress': { run: derivedIngress, namespaces: ['store'] },
  verified: { run: verified, namespaces: [] },
  explained: { run: explained, namespaces: [EXPLAINED] },
  'agent-takeover': { run: agentTakeover, namespaces: ['demo'] },
}

t.test('three joined clusters', { skip: kubeletMissing() ?? false, timeout: 1_500_000 }, async (t) => {
  const chosen = chosenStories(STORIES)
  const world = await startJoinedClusters({
    directory: temporaryFolder(t),
    rows: ROWS,
    say: (line) => t.comment(line),
    // The exporter's monitoring reads this page; the others do not depend on it.
    joinFlags: ['--status-listen', 'node', ...MARK_FLAGS],
  })
  t.teardown(() => world.stop())
  for (const [i, [name, { run, namespaces }]] of chosen.entries()) {
    await t.test(name, (t) => run(t, world))
    if (i < chosen.length - 1) await removeNamespaces(world.sites, namespaces)
  }
})
