/** One table is kept as planned: what is sent, what is repaired, and what remains after a refusal. */
import t from 'tap'
import { KernelError } from '../../../kernel/errors.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import {
  type ApplyInit,
  type ElementMaps,
  type PlannedTable,
  type TableComparison,
  TableApplier,
  elementDiff,
  elementStatements,
} from '../../../kernel/nft/apply-table.ts'
import { formatNft } from '../../../kernel/nft/nft-text.ts'
import type { NftElement, NftStatement } from '../../../kernel/nft/nft-transaction.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const TABLE = 'sealane_test'
const COMPARISONS: readonly TableComparison[] = ['elements with the plan', 'elements with the last listing']

const CLEAR: readonly NftStatement[] = [
  { verb: 'add-table', table: TABLE },
  { verb: 'delete-table', table: TABLE },
]
const PARTS: readonly NftStatement[] = [
  { verb: 'add-table', table: TABLE },
  { verb: 'add-counter', table: TABLE, counter: 'unused' },
  { verb: 'add-map', table: TABLE, map: 'far', type: { kind: 'set', key: 'ipv4_addr' } },
  { verb: 'add-map', table: TABLE, map: 'ways', type: { kind: 'map', key: 'ipv4_addr', value: 'ipv4_addr' } },
  { verb: 'add-chain', table: TABLE, chain: 'lone' },
  { verb: 'add-chain', table: TABLE, chain: 'guard', base: { type: 'filter', hook: 'forward', priority: 0 } },
  { verb: 'add-rule', table: TABLE, chain: 'guard', rule: 'ip daddr @far drop' },
]

type Elements = Readonly<Record<string, Readonly<Record<string, string | undefined>>>>
const ELEMENTS: Elements = { far: { '10.0.0.1': undefined }, ways: { '10.0.0.1': '10.9.0.1' } }

function mapsOf(elements: Elements): ElementMaps {
  return new Map(Object.entries(elements).map(([map, all]) => [map, new Map(Object.entries(all))]))
}

class Stage {
  readonly nft = new FakeNft()
  readonly clock = new FakeClock()
  readonly applier: TableApplier
  readonly sent: string[] = []
  readonly repaired: unknown[] = []
  #last: ElementMaps = new Map()

  constructor(comparison: TableComparison) {
    const { nft, clock } = this
    this.applier = new TableApplier({ nft, clock, table: TABLE, comparison })
    this.applier.follow({ warn: () => undefined }, () => undefined)
  }

  async apply(elements = ELEMENTS, { looks = false, parts = PARTS } = {}): Promise<void> {
    const wanted = mapsOf(elements)
    const planned: PlannedTable = {
      fixed: formatNft(parts, 'ip'),
      replacement: () => [
        ...CLEAR,
        ...parts,
        ...(parts.length === 0 ? [] : elementStatements(TABLE, elementDiff(new Map(), wanted))),
      ],
      delta: () => elementStatements(TABLE, elementDiff(this.#last, wanted)),
      elements: () => wanted,
    }
    const init: ApplyInit = {
      looks,
      drift: { repaired: (...all) => this.repaired.push(all) },
      onSent: ({ kind, statements }) => {
        this.sent.push(`${kind} ${formatNft(statements, 'ip')}`)
        this.#last = wanted
      },
    }
    await this.applier.apply(planned, init, new AbortController().signal)
  }

  table(): Promise<string | undefined> {
    return this.nft.listTable(TABLE)
  }
}

interface TestElement {
  readonly table: string
  readonly map: string
  readonly elements: readonly NftElement[]
}

function element(map: string, key: string, value?: string): TestElement {
  return { table: TABLE, map, elements: [value === undefined ? { key } : { key, value }] }
}

t.test('only elements that differ are sent, and the table is replaced if more does', async (t) => {
  for (const comparison of COMPARISONS) {
    const stage = new Stage(comparison)
    await stage.apply()
    await stage.apply()
    t.equal(stage.sent.length, 1, 'the same plan sends nothing')
    await stage.apply({ far: { '10.0.0.2': undefined }, ways: { '10.0.0.1': '10.9.0.7' } })
    t.equal(
      stage.sent[1],
      [
        'delta delete element ip sealane_test far {\n10.0.0.1\n}',
        'delete element ip sealane_test ways {\n10.0.0.1\n}',
        'add element ip sealane_test far {\n10.0.0.2\n}',
        'add element ip sealane_test ways {\n10.0.0.1 : 10.9.0.7\n}\n',
      ].join('\n'),
      'also if only a value differs',
    )
    await stage.apply(ELEMENTS, { parts: PARTS.slice(0, -1) })
    t.match(stage.sent[2], /^full add table ip sealane_test\ndelete table/)
    await stage.apply(ELEMENTS, { parts: PARTS.slice(0, -1), looks: true })
    t.strictSame([stage.sent.length, stage.repaired], [3, []], 'nothing of this is a repair')
  }
})

t.test('what others change is repaired and told once', async (t) => {
  const chain = { table: TABLE, chain: 'lone' }
  const rows: readonly {
    readonly change: readonly NftStatement[]
    readonly want: readonly [string, string]
    /** The expected change if elements are compared with the plan. */
    readonly planned?: readonly [string, string]
  }[] = [
    { change: [{ verb: 'delete-table', table: TABLE }], want: ['Missing', 'the whole table'] },
    { change: [{ verb: 'delete-chain', ...chain }], want: ['Missing', 'chain lone'] },
    { change: [{ verb: 'flush-chain', table: TABLE, chain: 'guard' }], want: ['Changed', 'chain guard'] },
    { change: [{ verb: 'add-rule', ...chain, rule: 'drop' }], want: ['Changed', 'chain lone'] },
    { change: [{ verb: 'add-chain', table: TABLE, chain: 'z' }], want: ['Foreign', 'chain z'] },
    { change: [{ verb: 'add-counter', table: TABLE, counter: 'z' }], want: ['Foreign', 'counter z'] },
    { change: [{ verb: 'delete-map', table: TABLE, map: 'ways', kind: 'map' }], want: ['Missing', 'map ways'] },
    {
      change: [{ verb: 'delete-elements', ...element('far', '10.0.0.1') }],
      want: ['Changed', 'set far'],
      planned: ['Missing', 'elements of far'],
    },
    {
      change: [{ verb: 'add-elements', ...element('ways', '10.0.0.5', '10.9.0.5') }],
      want: ['Changed', 'map ways'],
      planned: ['Foreign', 'elements of ways'],
    },
  ]
  for (const comparison of COMPARISONS) {
    for (const { change, want, planned } of rows) {
      const stage = new Stage(comparison)
      await stage.apply()
      await stage.apply(ELEMENTS, { looks: true })
      const meant = await stage.table()
      await stage.nft.interfere(change)
      await stage.apply()
      const isRepair = planned !== undefined && comparison === 'elements with the plan'
      const [reason, item] = isRepair ? planned : want
      t.strictSame(
        stage.repaired,
        [[isRepair ? 'nft-elements' : 'nft-table', reason, [item]]],
        `${comparison}: ${item}`,
      )
      t.equal(await stage.table(), meant)
      t.match(stage.sent[1], isRepair ? /^delta/ : /^full/, 'in one transaction')
      await stage.apply(ELEMENTS, { looks: true })
      t.equal(stage.repaired.length, 1)
    }
  }
})

t.test('parts of a kind that no plan has are noticed, and so is a table that was switched off', async (t) => {
  const rows: readonly (readonly [text: string, item: string])[] = [
    ['\tflags dormant\n', 'flags dormant'],
    ['\tlimit slow {\n\t\trate 1/second\n\t}\n', 'limit slow'],
    ['\tct helper ftp {\n\t\ttype "ftp" protocol tcp\n\t}\n', 'ct helper ftp'],
  ]
  for (const comparison of COMPARISONS) {
    for (const [text, item] of rows) {
      const stage = new Stage(comparison)
      await stage.apply()
      const list = stage.nft.listTable.bind(stage.nft)
      stage.nft.listTable = async (...all) => {
        // What others added is gone with the table.
        return stage.sent.length > 1 ? list(...all) : (await list(...all))?.replace('{\n', `{\n${text}`)
      }
      await stage.apply(ELEMENTS, { looks: true })
      t.strictSame(stage.repaired, [['nft-table', 'Foreign', [item]]])
      await stage.apply(ELEMENTS, { looks: true })
      t.equal(stage.repaired.length, 1)
    }
  }
})

t.test('the text of a rule is known from the first listing on', async (t) => {
  const other: readonly NftStatement[] = [
    { verb: 'flush-chain', table: TABLE, chain: 'guard' },
    { verb: 'add-rule', table: TABLE, chain: 'guard', rule: 'ip saddr @far drop' },
  ]
  const small = new Stage('elements with the last listing')
  await small.apply()
  await small.nft.interfere(other)
  await small.apply()
  t.strictSame(small.repaired, [['nft-table', 'Changed', ['chain guard']]])
})

t.test('a change of the plan does not hide what others changed', async (t) => {
  const stage = new Stage('elements with the last listing')
  await stage.apply()
  await stage.nft.interfere([{ verb: 'delete-chain', table: TABLE, chain: 'lone' }])
  await stage.apply({ ...ELEMENTS, far: {} })
  t.strictSame(stage.repaired, [['nft-table', 'Missing', ['chain lone']]])
  t.match(await stage.table(), /chain lone/)
})

t.test('a change of a map does not hide what others changed in the same map', async (t) => {
  const stage = new Stage('elements with the last listing')
  const more: Elements = { ...ELEMENTS, far: { '10.0.0.1': undefined, '10.0.0.2': undefined } }
  await stage.apply(more)
  await stage.nft.interfere([{ verb: 'delete-elements', ...element('far', '10.0.0.1') }])
  await stage.apply({ ...more, far: { ...more['far'], '10.0.0.3': undefined } })
  t.strictSame(stage.repaired, [['nft-table', 'Changed', ['set far']]])
  t.strictSame([stage.sent.length, stage.sent[1]?.startsWith('full')], [2, true], 'in one transaction, with the change')
  const keys = (await stage.nft.elements(TABLE, 'far')).map(({ key }) => key)
  t.strictSame(keys, ['10.0.0.1', '10.0.0.2', '10.0.0.3'])
  await stage.apply({ ...more, far: {} })
  t.strictSame([stage.repaired.length, stage.sent.length], [1, 3], 'a later change is a change again')
})

t.test('a refusal leaves what was enforced, and the next call replaces the table', async (t) => {
  for (const comparison of COMPARISONS) {
    const stage = new Stage(comparison)
    await stage.apply()
    const before = await stage.table()
    stage.nft.failNext(new KernelError('EBUSY', 'nft', 'not now'))
    await t.rejects(stage.apply({ far: {}, ways: {} }), { code: 'EBUSY' })
    t.notOk(stage.applier.isKnown)
    t.equal(await stage.table(), before)
    await stage.apply({ far: {}, ways: {} })
    t.strictSame([stage.applier.isKnown, stage.sent.length, stage.repaired], [true, 2, []])
    t.match(stage.sent[1], /^full/)
  }
})

t.test('a listing that fails says nothing about the table, and is repeated', async (t) => {
  for (const comparison of COMPARISONS) {
    const stage = new Stage(comparison)
    await stage.apply()
    await stage.nft.interfere([{ verb: 'delete-chain', table: TABLE, chain: 'lone' }])
    const list = stage.nft.listTable.bind(stage.nft)
    stage.nft.listTable = () => Promise.reject(new KernelError('TIMEOUT', 'nft list', 'too slow'))
    await t.rejects(stage.apply(), { code: 'TIMEOUT' })
    t.ok(stage.applier.isKnown)
    stage.nft.listTable = list
    await stage.apply()
    t.strictSame(stage.repaired, [['nft-table', 'Missing', ['chain lone']]])
  }
})

t.test('a table that cannot be listed still gets its changes', async (t) => {
  const stage = new Stage('elements with the last listing')
  await stage.apply()
  stage.nft.listTable = () => Promise.reject(new KernelError('TIMEOUT', 'nft list', 'too slow'))
  await t.rejects(stage.apply({ ...ELEMENTS, far: {} }, { looks: true }), { code: 'TIMEOUT' })
  t.strictSame(await stage.nft.elements(TABLE, 'far'), [])
})

t.test('a listing that fails after a change is made up for by the next call', async (t) => {
  const stage = new Stage('elements with the last listing')
  await stage.apply()
  const list = stage.nft.listTable.bind(stage.nft)
  stage.nft.listTable = () => Promise.reject(new KernelError('TIMEOUT', 'nft list', 'too slow'))
  await t.rejects(stage.apply({ ...ELEMENTS, far: {} }), { code: 'TIMEOUT' })
  let listings = 0
  stage.nft.listTable = (...all) => {
    listings += 1
    return list(...all)
  }
  await stage.apply({ ...ELEMENTS, far: {} })
  t.equal(listings, 1, 'without a notification')
  await stage.nft.interfere([{ verb: 'add-elements', ...element('far', '10.0.0.9') }])
  await stage.apply({ ...ELEMENTS, far: {} })
  t.strictSame(stage.repaired, [['nft-table', 'Changed', ['set far']]])
})

t.test('a plan without a table, and the removal of one', async (t) => {
  const { signal } = new AbortController()
  for (const comparison of COMPARISONS) {
    const stage = new Stage(comparison)
    await stage.apply({}, { parts: [] })
    await stage.apply({}, { parts: [], looks: true })
    t.strictSame([await stage.table(), stage.repaired], [undefined, []])
    await stage.nft.interfere([{ verb: 'add-table', table: TABLE }])
    await stage.apply({}, { parts: [] })
    t.strictSame([await stage.table(), stage.repaired], [undefined, [['nft-table', 'Foreign', ['the table']]]])
    await stage.apply()
    t.equal(await stage.applier.remove(signal), true)
    t.strictSame([await stage.table(), stage.applier.isKnown], [undefined, false])
    t.equal(await stage.applier.remove(signal), false)
    await stage.apply()
    t.match(await stage.table(), /chain lone/, 'and it may return')
  }
})

t.test('what rules add to a map is no part of the plan, and stays', async (t) => {
  const stage = new Stage('elements with the plan')
  const type = { kind: 'map', key: 'ipv4_addr', value: 'ipv4_addr', size: 9, flags: ['dynamic'] } as const
  const parts: readonly NftStatement[] = [...PARTS, { verb: 'add-map', table: TABLE, map: 'remembered', type }]
  await stage.apply(ELEMENTS, { parts })
  const elements = [{ key: '10.0.0.7', value: '10.9.0.1' }]
  await stage.nft.run([{ verb: 'add-elements', table: TABLE, map: 'remembered', elements }])
  await stage.apply(ELEMENTS, { looks: true, parts })
  t.same(await stage.nft.elements(TABLE, 'remembered'), elements)
  t.same(stage.repaired, [])
})
