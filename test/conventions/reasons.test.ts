/** One table (model/reasons/) has all reason codes, each with its meaning and the action to take. */
import t from 'tap'
import { NOT_IMPORTED_REASONS } from '../../model/member-status.ts'
import type { ReasonRow } from '../../model/reasons/reason-row.ts'
import { REASON_PARTS, firstReason, joinReasons, knownReason } from '../../model/reasons/reasons.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { DECLARED, declaredMetrics } from '../../scripts/documents/metrics-document.ts'
import { PRODUCT, isGenerated, sourceFiles } from '../support/source-tree.ts'

const rows = Object.values(REASON_PARTS).flatMap((part) => Object.entries<ReasonRow>(part))
const files = sourceFiles(/\.ts$/, PRODUCT).filter(({ path }) => !/^model\/reasons\//.test(path) && !isGenerated(path))
/** Files that use the reason codes of an API server, which are not in the table. */
const OTHERS_WORDS = /^kubeapi\/kube\/|^cli\/(installation|cluster|broker\/deploy)\//

t.test('every row says what it means, what to do, and where it shows', async (t) => {
  t.ok(rows.length > 50, 'there are reasons to judge')
  t.equal(new Set(rows.map(([code]) => code)).size, rows.length, 'no name stands in two parts')
  for (const [code, { means, todo, shows }] of rows) {
    // The pattern is that of metav1.Condition, with the limit of events.k8s.io/v1. Packet counters keep the names of
    // the kernel.
    t.match(code, /^([A-Z][A-Za-z0-9]{1,60}|[a-z]+([-_][a-z]+)*)$/, code)
    for (const text of [means, todo]) t.match(text, /^[A-Z`].*[.]$/, `${code}: a sentence: ${text}`)
    t.ok(shows.length > 0 && new Set(shows).size === shows.length, `${code}: places, each once`)
  }
})

t.test('the product uses no reason that the table lacks', async (t) => {
  for (const { path, text } of files.filter(({ path }) => !OTHERS_WORDS.test(path))) {
    for (const [, code] of text.matchAll(/\breason: '([A-Z][A-Za-z]+)'/g)) {
      if (knownReason(code) === undefined) t.fail(`${path}: ${code} is missing in model/reasons/`)
    }
  }
})

t.test('the product uses every row of the table', async (t) => {
  // All words are collected once, since a search for each code would read the product three hundred times.
  const said = new Set<string>()
  for (const { text } of files) {
    for (const [, quoted = ''] of text.matchAll(/'(?=([A-Za-z][A-Za-z0-9_-]*)')/g)) said.add(quoted)
    for (const [, key = ''] of text.matchAll(/^\s+([A-Za-z][A-Za-z0-9_-]*):/gm)) said.add(key)
  }
  for (const [code] of rows) if (!said.has(code)) t.fail(`${code}: nothing says it`)
})

/** The type of the reason that every warning and error must have beside its message. */
type Named = Parameters<Logger['warn' | 'error']>[1]['reason']

t.test('a warning or an error without a reason does not compile', async (t) => {
  const isNeeded: undefined extends Named ? never : true = true
  t.ok(isNeeded)
})

t.test('a place that is a metric has a label for the reason', async (t) => {
  const metrics = Object.values(DECLARED).flatMap((declare) => declaredMetrics(declare))
  const labelled = metrics.filter(({ labels }) => labels?.includes('reason')).map(({ name }) => name)
  const places = new Set(rows.flatMap(([, { shows }]) => shows).filter((place) => place.startsWith('metric ')))
  t.same([...places].map((place) => place.slice('metric '.length)).sort(), labelled.sort())
})

t.test('what a member does not import is said by one reason in the status, the condition and the metric', async (t) => {
  for (const code of NOT_IMPORTED_REASONS) {
    const shows = rows.find(([name]) => name === code)?.[1].shows ?? []
    t.ok(shows.includes('condition sealane.io/Imported of ServiceExport'), code)
    t.ok(shows.includes('metric sealane_agent_not_imported'), code)
  }
})

t.test('several reasons of one condition are joined by commas', async (t) => {
  t.equal(joinReasons(['PortConflict']), 'PortConflict')
  t.equal(joinReasons(['PortConflict', 'TypeConflict']), 'PortConflict,TypeConflict')
  t.equal(firstReason('PortConflict,TypeConflict'), 'PortConflict')
  t.equal(knownReason('toString'), undefined)
})

/** Files that may decide by the text of a message. */
const READS_TEXT = [
  // These drivers read the texts of an API server, of etcd, of kernel tools and of a library, and map each text to a
  // code in one place.
  /^kubeapi\/kube\//,
  /^kubeapi\/files\/yaml-source\.ts$/,
  /^broker\/store\/etcd\/client\//,
  /^kernel\/wireguard\/wireguard-go\.ts$/,
  /^cli\/status\/probes\/host-probe\.ts$/,
  // The API server reports a terminating namespace only in a text, for which its driver has no code.
  /^agent\/loop\/mirror-writer\.ts$/,
  // The text comes from a Sealane command in the broker's pod, or from a broker of an earlier release.
  /^cli\/broker\/deploy\/move-broker\.ts$/,
  // The file only avoids naming a field twice in one line, and decides nothing by the text.
  /^broker\/sessions\/member-changes\.ts$/,
]
const BY_TEXT =
  /\b(?:message|why|failure|note|said|says)\??\.(?:includes|startsWith|endsWith|match|search|indexOf)\(|\.test\([\w.?]*\b(?:message|why|failure)\b/

t.test('nothing is decided by the text of a message of ours', async (t) => {
  // The pattern matches nothing across lines, so most files are not taken apart.
  const others = files.filter(({ path, text }) => !READS_TEXT.some((one) => one.test(path)) && BY_TEXT.test(text))
  for (const { path, text } of others)
    for (const [i, line] of text.split('\n').entries())
      if (BY_TEXT.test(line)) t.fail(`${path}:${i + 1}: take a reason code or a field: ${line.trim()}`)
  for (const one of READS_TEXT)
    t.ok(
      files.some(({ path, text }) => one.test(path) && BY_TEXT.test(text)),
      `${one.source}: the exception is needed`,
    )
})
