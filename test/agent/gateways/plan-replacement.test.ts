/** Which gateway nodes the agent replaces, and with which ones. */
import fc from 'fast-check'
import t from 'tap'
import {
  ALL_RUN_MS,
  type ChosenRecord,
  MISSING_MS,
  type ReplacementWorld,
  formatRecord,
  parseRecord,
  planReplacement,
  replacementFinding,
} from '../../../agent/gateways/plan-replacement.ts'
import type { Node } from '../../../model/objects.ts'
import { nodeObject } from '../../support/objects/node-objects.ts'

/**
 * `silent`: not ready for long enough. `n1 join`, `n2 removed`, `n3 agent spot a`: the words may be in any order; a single letter is a zone. `bare`: without
 * the label.
 */
function node(text: string): Node {
  const [name = '', ...words] = text.split(' ')
  const has = (word: string): boolean => words.includes(word)
  const zone = words.find((word) => word.length === 1)
  const by = has('join') ? 'join' : has('agent') ? 'agent' : undefined
  const isLabelled = has('labelled') || (by !== undefined && !has('bare'))
  const taint = (word: string, key: string) => (has(word) ? [{ key, effect: 'NoSchedule' }] : [])
  return nodeObject(name, {
    metadata: {
      uid: `uid-${name}`,
      labels: {
        'kubernetes.io/os': 'linux',
        ...(isLabelled ? { 'sealane.io/gateway': 'true' } : {}),
        ...(has('spot') ? { 'karpenter.sh/capacity-type': 'spot' } : {}),
        ...(has('virtual') ? { type: 'virtual-kubelet' } : {}),
        ...(zone === undefined ? {} : { 'topology.kubernetes.io/zone': zone }),
      },
      annotations: by === undefined ? {} : { 'sealane.io/gateway-chosen-by': by },
    },
    spec: {
      ...(has('cordoned') ? { unschedulable: true } : {}),
      taints: [
        ...taint('removed', 'ToBeDeletedByClusterAutoscaler'),
        ...taint('unready', 'node.kubernetes.io/not-ready'),
        ...taint('candidate', 'DeletionCandidateOfClusterAutoscaler'),
      ],
    },
    status: {
      addresses: [
        { type: 'InternalIP', address: '10.0.0.1' },
        ...(has('called') ? [{ type: 'ExternalIP', address: '198.51.100.7' }] : []),
      ],
    },
  })
}

/** `2 n1 n2; given n3; released n4` */
function record(text: string): ChosenRecord | undefined {
  if (text === '') return undefined
  const [chosen = '', ...others] = text.split('; ')
  const [count, ...names] = chosen.split(' ')
  const uids = (word: string): Set<string> => {
    const found =
      others
        .find((one) => one.startsWith(word))
        ?.split(' ')
        .slice(1) ?? []
    return new Set(found.map((name) => `uid-${name}`))
  }
  const nodes = new Map(names.map((name) => [`uid-${name}`, name]))
  return { count: Number(count), nodes, given: uids('given'), released: uids('released') }
}

function plan(nodes: readonly string[], before: string, change: Partial<ReplacementWorld> = {}) {
  const all = nodes.map(node)
  const present = new Set(all.map(({ metadata }) => metadata.name))
  const known = record(before)
  return planReplacement({
    nodes: all,
    running: present,
    record: known,
    silent: new Map(
      nodes.filter((text) => / silent\b/.test(text)).map((text) => [`uid-${text.split(' ')[0] ?? ''}`, 'a-taint']),
    ),
    gone: new Set([...(known?.nodes ?? [])].flatMap(([uid, name]) => (present.has(name) ? [] : [uid]))),
    activeGateways: 2,
    nodeSelector: {},
    missingMs: undefined,
    ...change,
  })
}

/** `n3 for n1` and `- for n2`, and the record. */
function shown({ replacements, lacking, record: { count, nodes } }: ReturnType<typeof planReplacement>): string {
  const made = replacements.map(({ node: name, insteadOf }) => `${name} for ${insteadOf ?? 'none'}`)
  const open = lacking.map(({ node: name }) => `- for ${name}`)
  return `${[...made, ...open].join(', ')} | ${[count, ...[...nodes.values()].sort()].join(' ')}`
}

const ROWS: readonly (readonly [say: string, nodes: readonly string[], before: string, want: string])[] = [
  ['the first look', ['n1 join', 'n2 join', 'n3'], '', ' | 2 n1 n2'],
  ['nothing happens', ['n1 join', 'n2 join', 'n3'], '2 n1 n2', ' | 2 n1 n2'],
  ['one is gone', ['n2 join', 'n3', 'n4'], '2 n1 n2', 'n3 for n1 | 2 n2 n3'],
  ['both are gone', ['n3', 'n4', 'n5'], '2 n1 n2', 'n3 for n1, n4 for n2 | 2 n3 n4'],
  ['one is being removed', ['n1 join removed', 'n2 join', 'n3'], '2 n1 n2', 'n3 for n1 | 2 n1 n2 n3'],
  ['it has been replaced', ['n1 join removed', 'n2 join', 'n3 agent', 'n4'], '2 n1 n2 n3', ' | 2 n1 n2 n3'],
  ['then it is gone', ['n2 join', 'n3 agent', 'n4'], '2 n1 n2 n3', ' | 2 n2 n3'],
  ['or stays after all', ['n1 join', 'n2 join', 'n3 agent', 'n4'], '2 n1 n2 n3', ' | 2 n1 n2 n3'],
  ['so that the next loss needs no other', ['n1 join', 'n3 agent', 'n4'], '2 n1 n2 n3', ' | 2 n1 n3'],
  ['nothing else is there', ['n2 join'], '2 n1 n2', '- for n1 | 2 n1 n2'],
  ['until a node comes', ['n2 join', 'n3'], '2 n1 n2', 'n3 for n1 | 2 n2 n3'],
  ['one for two', ['n3'], '2 n1 n2', 'n3 for n1, - for n2 | 2 n2 n3'],
  ['not ready is not gone', ['n1 join unready', 'n2 join', 'n3'], '2 n1 n2', ' | 2 n1 n2'],
  ['unless for long', ['n1 join unready silent', 'n2 join', 'n3'], '2 n1 n2', 'n3 for n1 | 2 n1 n2 n3'],
  ['and then it is replaced', ['n1 join silent', 'n2 join', 'n3 agent', 'n4'], '2 n1 n2 n3', ' | 2 n1 n2 n3'],
  ['both are', ['n1 join silent', 'n2 agent silent', 'n3'], '2 n1 n2', 'n3 for n1, - for n2 | 2 n1 n2 n3'],
  ['its zone is free', ['n1 join silent a', 'n2 join b', 'n3 b', 'n4 a'], '2 n1 n2', 'n4 for n1 | 2 n1 n2 n4'],
  ['a user labelled it', ['n1 labelled silent', 'n2 join', 'n3'], '1 n2', ' | 1 n2'],
  ['nor is cordoned', ['n1 join cordoned', 'n2 join', 'n3'], '2 n1 n2', ' | 2 n1 n2'],
  ['nor is a candidate of the autoscaler', ['n1 join candidate', 'n2 join', 'n3'], '2 n1 n2', ' | 2 n1 n2'],
  ['the user takes the label away', ['n1', 'n2 join', 'n3'], '2 n1 n2', ' | 1 n2'],
  ['the user takes the annotation away', ['n1 labelled', 'n2 join', 'n3'], '2 n1 n2', ' | 1 n2'],
  ['the user takes one away, and the other is gone', ['n1', 'n3'], '2 n1 n2', 'n3 for n2 | 1 n3'],
  ['a user labelled them', ['n1 labelled removed', 'n2 labelled', 'n3'], '', ' | 0'],
  ['beside those of a user', ['n1 labelled', 'n3'], '1 n2', 'n3 for n2 | 1 n3'],
  [
    'who takes no part',
    ['n2 join', 'n3 unready', 'n4 cordoned', 'n5 virtual', 'n6 removed'],
    '2 n1 n2',
    '- for n1 | 2 n1 n2',
  ],
  ['one that stays before spot', ['n2 join', 'n3 spot', 'n4'], '2 n1 n2', 'n4 for n1 | 2 n2 n4'],
  ['spot where nothing else is there', ['n2 join', 'n3 spot'], '2 n1 n2', 'n3 for n1 | 2 n2 n3'],
  ['another zone', ['n2 join a', 'n3 a', 'n4 b'], '2 n1 n2', 'n4 for n1 | 2 n2 n4'],
  ['a later join chose again', ['n3 join', 'n4 join', 'n5'], '2 n1 n2', ' | 2 n3 n4'],
  ['the agent died before it noted the new one', ['n2 join', 'n3 agent', 'n4'], '2 n1 n2', ' | 2 n2 n3'],
]

t.test('what is replaced', async (t) => {
  for (const [say, nodes, before, want] of ROWS) {
    const made = plan(nodes, before)
    t.equal(shown(made), want, say)
    t.strictSame(parseRecord(formatRecord(made.record))?.nodes, new Map([...made.record.nodes].sort()), say)
  }
})

const FILL_ROWS: readonly (readonly [say: string, nodes: readonly string[], before: string, want: string])[] = [
  ['from nothing', ['n1', 'n2', 'n3'], '', 'n1 for none, n2 for none | 2 n1 n2'],
  ['the best ones', ['n1 spot', 'n2 a', 'n3 a', 'n4 b'], '', 'n2 for none, n4 for none | 2 n2 n4'],
  ['one is there', ['n1 agent', 'n2'], '2 n1', 'n2 for none | 2 n1 n2'],
  ['enough are there', ['n1 agent', 'n2 agent', 'n3'], '2 n1 n2', ' | 2 n1 n2'],
  ['a user labelled one', ['n1 labelled', 'n2', 'n3'], '', 'n2 for none | 1 n2'],
  ['a user labelled as many', ['n1 labelled', 'n2 labelled', 'n3'], '', ' | 0'],
  ['a user labelled more', ['n1 labelled', 'n2 labelled', 'n3 labelled', 'n4'], '', ' | 0'],
  ['that of a user is being removed', ['n1 labelled removed', 'n2 labelled', 'n3'], '', 'n3 for none | 1 n3'],
  ['one is gone, one was never there', ['n2', 'n3'], '1 n1', 'n2 for n1, n3 for none | 2 n2 n3'],
  ['one is being removed', ['n1 agent removed', 'n2 agent', 'n3'], '2 n1 n2', 'n3 for n1 | 2 n1 n2 n3'],
  ['one is silent', ['n1 agent silent', 'n2 agent', 'n3'], '2 n1 n2', 'n3 for n1 | 2 n1 n2 n3'],
  ['that of a user is silent', ['n1 labelled silent', 'n2 agent', 'n3'], '1 n2', ' | 1 n2'],
  ['one node', ['n1'], '', 'n1 for none | 2 n1'],
  ['no node may', ['n1 cordoned', 'n2 virtual', 'n3 removed'], '', ' | 2'],
  ['a join chose one', ['n1 join', 'n2'], '', 'n2 for none | 2 n1 n2'],
]

t.test('gateways are missing, and the agent chooses them', async (t) => {
  for (const [say, nodes, before, want] of FILL_ROWS) {
    t.equal(shown(plan(nodes, before, { missingMs: ALL_RUN_MS })), want, say)
  }
  const some = ['n1', 'n2']
  t.equal(shown(plan(some, '', { missingMs: 0 })), ' | 2', 'only for a moment')
  t.equal(plan(some, '', { missingMs: 0 }).missing, 2)
  t.equal(shown(plan(some, '', { missingMs: MISSING_MS })), 'n1 for none, n2 for none | 2 n1 n2', 'for longer')
  t.equal(plan(some, '', { missingMs: MISSING_MS }).missing, 0)
  const running = new Set(['n2'])
  t.equal(shown(plan(some, '', { missingMs: MISSING_MS, running })), ' | 2', 'a better node may follow')
  t.equal(shown(plan(some, '', { missingMs: ALL_RUN_MS, running })), 'n2 for none | 2 n2', 'it did not')
  t.equal(shown(plan(some, '')), ' | 0', 'not unless the installation says so')
})

const RELEASED_ROWS: readonly (readonly [say: string, nodes: readonly string[], before: string, want: string])[] = [
  ['its annotation is left', ['n1 agent bare', 'n2 agent'], '2 n2', ' | 2 n2'],
  ['only the record knows', ['n1', 'n2 agent'], '2 n1 n2', ' | 2 n2'],
  ['it was a user who had labelled it', ['n1', 'n2 agent'], '1 n2; given n1', ' | 2 n2'],
  ['a later look', ['n1', 'n2 agent'], '2 n2; released n1', ' | 2 n2'],
  ['another one takes its place', ['n1 agent bare', 'n2 agent', 'n3'], '2 n2', 'n3 for none | 2 n2 n3'],
  ['also if it is worse', ['n1 join bare', 'n2 agent', 'n3 spot'], '2 n2', 'n3 for none | 2 n2 n3'],
  ['all were taken away', ['n1 join bare', 'n2 join bare'], '2 n1 n2', ' | 2'],
  ['it was made again', ['n1', 'n2 agent'], '2 n2; released n7', 'n1 for none | 2 n1 n2'],
]

t.test('a node whose label was taken away is not labelled again', async (t) => {
  for (const [say, nodes, before, want] of RELEASED_ROWS) {
    const made = plan(nodes, before, { missingMs: ALL_RUN_MS })
    t.equal(shown(made), want, say)
    t.strictSame(parseRecord(formatRecord(made.record)), made.record, say)
    const again = plan(nodes, '', { record: made.record, missingMs: ALL_RUN_MS, gone: new Set() })
    t.notOk(
      again.replacements.some(({ uid }) => made.record.released.has(uid)),
      say,
    )
  }
  const lost = plan(['n1 join bare', 'n3'], '2 n1 n2')
  t.equal(shown(lost), 'n3 for n2 | 1 n3', 'nor in place of another one')
  const labelled = plan(['n1 labelled', 'n2 agent'], '2 n2; released n1')
  t.strictSame([...labelled.record.released], [], 'until a user labels it')
  t.strictSame([...labelled.record.given], ['uid-n1'])
})

t.test('only nodes on which gateways may run', async (t) => {
  const nodes = ['n1 a', 'n2 b', 'n3 b']
  const nodeSelector = { 'topology.kubernetes.io/zone': 'b' }
  t.equal(shown(plan(nodes, '', { missingMs: ALL_RUN_MS, nodeSelector })), 'n2 for none, n3 for none | 2 n2 n3')
  t.equal(shown(plan(nodes, '2 n7', { nodeSelector })), 'n2 for n7 | 1 n2', 'a replacement, too')
})

t.test('what is not seen is not gone', async (t) => {
  t.equal(shown(plan(['n2 join', 'n3'], '2 n1 n2', { gone: new Set() })), ' | 2 n1 n2')
  t.equal(shown(plan([], '2 n1 n2', { gone: new Set() })), ' | 2 n1 n2')
})

t.test('a node on which nothing of ours runs takes no part', async (t) => {
  t.equal(shown(plan(['n2 join', 'n3', 'n4'], '2 n1 n2', { running: new Set(['n4']) })), 'n4 for n1 | 2 n2 n4')
})

t.test('a Node that was made again under its name is another one', async (t) => {
  const again = node('n1')
  const made = plan(['n2 join', 'n3'], '2 n1 n2', {
    nodes: [{ ...again, metadata: { ...again.metadata, uid: 'other' } }, node('n2 join')],
    running: new Set(['n1', 'n2']),
    gone: new Set(['uid-n1']),
  })
  t.match(made.replacements, [{ node: 'n1', uid: 'other', insteadOf: 'n1', why: 'it is gone' }])
})

t.test('no more than are active', async (t) => {
  t.equal(shown(plan(['n3', 'n4', 'n5', 'n6'], '4 n1 n2 n7 n8')), 'n3 for n1, n4 for n2 | 2 n3 n4')
})

t.test('a public address is annotated, unless it is', async (t) => {
  const [one] = plan(['n2 join', 'n3 called'], '2 n1 n2').replacements
  t.match(one, { node: 'n3', publicAddress: '198.51.100.7', transient: undefined })
  const [other] = plan(['n2 join', 'n3'], '2 n1 n2').replacements
  t.equal(other?.publicAddress, undefined)
})

t.test('what the condition says', async (t) => {
  const said = (nodes: readonly string[], before: string): string => {
    const { status, reason, message } = replacementFinding(plan(nodes, before))
    return `${status} ${reason}: ${message}`
  }
  t.equal(said(['n1 join', 'n2 join'], '2 n1 n2'), 'True GatewaysThere: the chosen gateways are there: n1, n2')
  t.equal(said(['n2 join', 'n3'], '2 n1 n2'), 'True GatewayReplaced: n3 is a gateway in place of n1: it is gone')
  t.equal(
    said(['n1 join removed', 'n2 join', 'n3 spot'], '2 n1 n2'),
    'True GatewayReplaced: n3 is a gateway in place of n1: the node has the taint ToBeDeletedByClusterAutoscaler; ' +
      'its provider may take n3 away as well (label karpenter.sh/capacity-type=spot)',
  )
  t.equal(
    said(['n2 join'], '2 n1 n2'),
    'False GatewayNotReplaced: no node can become a gateway in place of n1 (it is gone)',
  )
})

t.test('what is said of a chosen one', async (t) => {
  const made = plan(['n1'], '', { missingMs: ALL_RUN_MS })
  const { status, reason, message } = replacementFinding(made)
  t.equal(`${status} ${reason}: ${message}`, 'True GatewayChosen: n1 is a gateway: 0 of 2 gateways were there')
})

t.test('texts that are no record', async (t) => {
  for (const text of [
    undefined,
    '',
    '{',
    'null',
    '[]',
    '{"count":-1,"nodes":{}}',
    '{"count":1.5,"nodes":{}}',
    '{"count":1,"nodes":[]}',
    '{"count":1,"nodes":{"a":1}}',
    '{"count":1,"nodes":{},"given":"a"}',
    '{"count":1,"nodes":{},"released":[1]}',
    '{"count":9999,"nodes":{}}',
    `{"count":1,"nodes":{"a":"${'x'.repeat(40_000)}"}}`,
  ])
    t.equal(parseRecord(text), undefined, text?.slice(0, 40) ?? 'none')
  fc.assert(fc.property(fc.anything(), (value) => parseRecord(JSON.stringify(value))?.count !== -1))
})

const WORDS = ['join', 'agent', 'labelled', 'removed', 'unready', 'cordoned', 'spot', 'virtual', 'candidate', 'a', 'b']
const someNodes = fc
  .array(fc.subarray(WORDS), { maxLength: 8 })
  .map((all) => all.map((words, i) => `n${i} ${words.join(' ')}`))
const someRecord = fc.record({ count: fc.nat(8), names: fc.subarray(['n0', 'n1', 'n2', 'n7', 'n8', 'n9']) })

t.test('any nodes that the agent may fill up: at most as many as are active, and then nothing more to do', async () => {
  fc.assert(
    fc.property(someNodes, someRecord, fc.integer({ min: 1, max: 8 }), (nodes, { count, names }, activeGateways) => {
      const change = { activeGateways, missingMs: ALL_RUN_MS }
      const made = plan(nodes, [count, ...names].join(' '), change)
      const after = nodes.map((text) => {
        const name = text.split(' ')[0] ?? ''
        return made.replacements.some((one) => one.node === name) ? `${text} agent` : text
      })
      const left = [made.record.count, ...made.record.nodes.values()].join(' ')
      const next = plan(after, left, { ...change, record: made.record })
      const staying = after.filter((text) => / (join|agent|labelled)\b/.test(text) && !/ removed\b/.test(text)).length
      const chose = made.replacements.length
      return (chose === 0 || staying <= activeGateways) && next.replacements.length === 0
    }),
    { numRuns: 300 },
  )
})

t.test('any nodes: at most as many as join chose, only nodes that may, and then nothing more to do', async () => {
  fc.assert(
    fc.property(someNodes, someRecord, fc.integer({ min: 1, max: 8 }), (nodes, { count, names }, activeGateways) => {
      const made = plan(nodes, [count, ...names].join(' '), { activeGateways })
      const after = nodes.map((text) => {
        const name = text.split(' ')[0] ?? ''
        return made.replacements.some((one) => one.node === name) ? `${text} agent` : text
      })
      const left = [made.record.count, ...made.record.nodes.values()].join(' ')
      const next = plan(after, left, { activeGateways, record: made.record })
      const staying = (all: readonly string[]): number =>
        all.filter((text) => / (join|agent)\b/.test(text) && !/ removed\b/.test(text)).length
      const isAllowed = made.replacements.every(({ node: name }) => {
        const words = nodes.find((text) => text.split(' ')[0] === name) ?? ''
        return !/ (join|agent|labelled|removed|unready|cordoned|virtual)\b/.test(words) && !names.includes(name)
      })
      return (
        isAllowed &&
        made.record.count <= activeGateways &&
        (made.replacements.length === 0 || staying(after) <= made.record.count) &&
        next.replacements.length === 0 &&
        next.record.count === made.record.count
      )
    }),
    { numRuns: 300 },
  )
})
