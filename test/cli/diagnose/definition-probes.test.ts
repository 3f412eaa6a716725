/** The facts that diagnose reads from the CustomResourceDefinitions of a cluster. */
import t from 'tap'
import { definitionProbes, definitionsAmong, productsAmong } from '../../../cli/status/probes/definition-probes.ts'
import type { Area } from '../../../explain/facts/finding.ts'
import { ALL_CRDS, OWN_CRDS } from '../../../install/crds/all-crds.ts'
import { LABEL_CRD_REVISION } from '../../../install/crds/sealane-crds.ts'
import { LABEL_MCS_RELEASE } from '../../../install/crds/multicluster-crds.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'

interface Listed {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
}

const ALL: readonly Listed[] = ALL_CRDS.map(({ metadata: { name, labels = {} } }) => ({ name, labels }))

function labelled(name: string, label: string, value: string | undefined): readonly Listed[] {
  return ALL.map((one) => {
    if (one.name !== name) return one
    const { [label]: _before, ...rest } = one.labels
    return { name, labels: value === undefined ? rest : { ...rest, [label]: value } }
  })
}

const older = (listed: readonly Listed[]): string[] =>
  definitionsAmong(listed).flatMap(({ name, isOlder }) => (isOlder ? [name] : []))

t.test('which definitions are older than the command', async (t) => {
  t.same(older(ALL), [], 'those that it installs itself')
  t.same(older([]), [], 'what is not there is missed by who lists its objects')
  const [gateways, imports] = ['gateways.sealane.io', 'serviceimports.multicluster.x-k8s.io']
  for (const [value, expected] of [
    ['7', [gateways]],
    ['0', [gateways]],
    ['999999999', []],
    [undefined, []],
    ['-1', []],
    ['1e3', []],
    ['../../etc', []],
  ] as const) {
    t.same(older(labelled(gateways, LABEL_CRD_REVISION, value)), expected, `revision ${value ?? 'missing'}`)
  }
  for (const [value, expected] of [
    ['v0.1.0', [imports]],
    ['v9.0.0', []],
    [undefined, []],
  ] as const) {
    t.same(older(labelled(imports, LABEL_MCS_RELEASE, value)), expected, `release ${value ?? 'missing'}`)
  }
  const all = ALL.map(({ name }) => ({ name, labels: { [LABEL_CRD_REVISION]: '1', [LABEL_MCS_RELEASE]: 'v0.0.1' } }))
  t.ok(older(all).length >= OWN_CRDS.length, 'all of them')
})

t.test('other products are those that take ServiceImports for their own', async (t) => {
  const crds = ['submariners.submariner.io', 'sites.skupper.io', 'resourcebindings.work.karmada.io', 'x.example.com']
  t.same(
    productsAmong(crds.map((name) => ({ name, labels: {} }))).map(({ name }) => name),
    ['Submariner', 'Karmada'],
  )
})

function probe(answer: () => Promise<unknown[]>, area?: Area) {
  const reader = { listPicked: answer as never }
  return definitionProbes(reader, { title: 'context "c1"', area, signal: new AbortController().signal })
}

t.test('who may not list them is told so, and who asks for something else asks for nothing', async (t) => {
  const refuses = () => Promise.reject(new ClusterApiError('Forbidden', 'no'))
  t.match(await probe(refuses), [
    { t: 'unanswered', reason: 'RightMissing', needed: false, message: /list customresourcedefinitions/ },
  ])
  t.same(await probe(refuses, 'dns'), [])
  t.match(await probe(() => Promise.resolve([])), [
    { kind: 'definition', items: [] },
    { kind: 'other-product', items: [] },
  ])
})
