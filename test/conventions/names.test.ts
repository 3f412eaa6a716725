/** Rules for the names of files and for the files that must exist beside them. */
import { existsSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import t from 'tap'
import ts from 'typescript'
import { PRODUCT, ROOT, isGenerated, sourceFiles } from '../support/source-tree.ts'

const FOLDERS = [...PRODUCT, 'test', 'bench', 'demo', 'scripts']
const BANNED = /^(utils?|helpers?|common|managers?|misc)$/
/**
 * Home-made words in file names and declarations, each with the usual words for it. Terms of other projects stay: a
 * verdict ends a rule of nftables, an IPv6 group stands for IPv4, and a token of Kubernetes has audiences.
 */
const HOME_MADE: readonly (readonly [word: RegExp, instead: string, but?: RegExp])[] = [
  [/^desks?$/, 'client or store'],
  [/^tell(s|er|ers|ing)?$|^told$|^untold$/, 'report, record', /tellsStatus/],
  [/^verdicts?$/, 'finding or validation', /^(kernel|test\/kernel)\/|verdictOf/],
  [/^judge(d|s|ment)?$|^judgement$/, 'validate'],
  [/^wish(es|ed)?$/, 'options'],
  [/^hear$/, 'onX'],
  [/^(toy|toys)$/, 'fake'],
  [/^podlets?$/, 'test kubelet'],
  [/^requester$/, 'http client'],
  [/^scaffold$/, 'table layout'],
  [/^nearness$/, 'locality'],
  [/^ground$/, 'context'],
  [/^birth$/, 'creation metadata'],
  [/^inherited$/, 'handed over', /parse-objects|broker\/token|run-join/],
  [/^standing$/, 'installed, membership', /standsForIpv4/],
  [/^paces?$/, 'rate limiter, timing', /^(test|bench|demo)\//],
  [/^tenures?$/, 'lease', /^(test|bench|demo)\//],
  [/^doubt(s|ed)?$/, 'suspect', /^(test|bench|demo)\//],
  [/^knocks?$/, 'TCP probe', /^(test|bench|demo)\//],
  [/^unmade$/, 'failed', /^(test|bench|demo)\//],
  [/^anew$/, 'again', /^(test|bench|demo)\//],
  [/^audiences?$/, 'authorization', /^(test|bench|demo|cli\/status\/console|install\/values|kubeapi\/kube)\//],
]
/** Whole names that do not say what they stand for. */
const WHOLE = /^(Claim|Place|Look|Asked|Standing|Verdict|Holding|Birth|Ground)$/

const files = sourceFiles(/\.ts$/, FOLDERS).filter(({ path }) => !isGenerated(path))

t.test('files are kebab-case and say what they are', async (t) => {
  for (const { path } of files) {
    const name = basename(path).replace(/(\.test)?\.ts$/, '')
    t.match(name, /^[a-z0-9]+(-[a-z0-9]+)*$/, path)
    for (const part of [...path.split('/').slice(0, -1), name]) {
      if (BANNED.test(part)) t.fail(`${path}: "${part}" says nothing about what is in it`)
    }
  }
})

t.test('names are the words of the field', async (t) => {
  for (const { path, text } of files) {
    const ownName = basename(path).replace(/(\.test)?\.ts$/, '')
    for (const name of isSuspect(text) ? [ownName, ...declared(path, text)] : [ownName]) {
      if (WHOLE.test(name)) t.fail(`${path}: ${name} does not say what it is`)
      for (const word of partsOf(name)) {
        const row = HOME_MADE.find(([banned]) => banned.test(word))
        if (row !== undefined && row[2]?.test(`${path} ${name}`) !== true) t.fail(`${path}: ${name}: say ${row[1]}`)
      }
    }
  }
})

t.test('exports are named', async (t) => {
  for (const { path, text } of files) if (/^export default/m.test(text)) t.fail(`${path} has a default export`)
})

t.test('every component has a README', async (t) => {
  for (const folder of PRODUCT) t.ok(existsSync(join(ROOT, folder, 'README.md')), `${folder}/README.md`)
})

t.test('no registry host and no machine path in any file', async (t) => {
  const texts = sourceFiles(/(\.(ts|js|json|md|yaml|yml|sh|proto)|\/(run|sealane))$/)
  for (const { path, text } of texts.filter(({ path }) => path !== 'test/conventions/names.test.ts')) {
    if (/registry\.npmjs|proxy\.golang\.org|deb\.debian\.org/.test(text)) t.fail(`${path} names a registry host`)
    if (/(^|[\s"'`(])\/(work|root)\//.test(text)) t.fail(`${path} has a path of one machine`)
  }
})

t.test('the command runs newer sources instead of the compiled copy, whichever folder they are in', async (t) => {
  const text = readFileSync(join(ROOT, 'bin/sealane'), 'utf8')
  for (const folder of PRODUCT) t.ok(text.includes(`"$root/${folder}"`), folder)
})

/** The words of a name, in lower case. */
function partsOf(name: string): readonly string[] {
  return name.split(/[-_#]|(?<=[a-z0-9])(?=[A-Z])/).map((one) => one.toLowerCase())
}

const suspects = new Map<string, boolean>()

/** Whether any word of the text, comments included, is in a rule. Only such a file is parsed for what it declares. */
function isSuspect(text: string): boolean {
  return (text.match(/[\w$\u0080-\uffff]+/g) ?? []).some((name) => {
    const known = suspects.get(name)
    if (known !== undefined) return known
    const is = WHOLE.test(name) || partsOf(name).some((word) => HOME_MADE.some(([banned]) => banned.test(word)))
    suspects.set(name, is)
    return is
  })
}

/** Returns the names that a file declares, without the names of other modules. */
function declared(path: string, text: string): readonly string[] {
  const names: string[] = []
  const visit = (node: ts.Node): void => {
    if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) {
      const { parent } = node
      const isOwn = 'name' in parent && parent.name === node && !ts.isPropertyAccessExpression(parent)
      if (isOwn && !ts.isImportSpecifier(parent) && !ts.isPropertyAssignment(parent)) names.push(node.text)
    }
    ts.forEachChild(node, visit)
  }
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true))
  return names
}
