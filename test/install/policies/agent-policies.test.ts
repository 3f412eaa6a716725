/**
 * What the agent's policies let a thief of its token do: the rules of the API server, as far as this test can evaluate
 * them.
 */
import t from 'tap'
import { GATEWAY } from '../../../install/crds/sealane-crds.ts'
import { agentPolicies } from '../../../install/policies/agent-policies.ts'
import { formatYaml } from '../../../kubeapi/yaml.ts'
import { parseSiteFile } from '../../../kubeapi/files/site-file.ts'

interface Policy {
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly spec: {
    readonly variables?: readonly { readonly expression: string }[]
    readonly validations: readonly { readonly expression: string }[]
  }
}

function specOf(name: string): Policy['spec'] | undefined {
  const all = agentPolicies('sealane-system') as unknown as readonly Policy[]
  const found = all.find(({ kind, metadata }) => kind === 'ValidatingAdmissionPolicy' && metadata.name === name)
  return found?.spec
}

const [{ expression: ALLOWED } = { expression: '' }] = specOf('sealane-agent-namespaces')?.variables ?? []
const [, PATTERN = '', WANTED = ''] =
  /\.matches\(r'([^']+)'\.replace\('(.)', request\.namespace\)\)$/.exec(ALLOWED) ?? []

function opens(site: string, namespace: string): boolean {
  return new RegExp(PATTERN.replaceAll(WANTED, namespace)).test(site)
}

/** The namespaces that the agent itself reads. Undefined if it does not start with the file. */
function readBy(site: string): readonly string[] | undefined {
  try {
    return parseSiteFile('/site.yaml', site).allowedNamespaces
  } catch {
    return undefined
  }
}

const HEAD = 'apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: {name: roma}\n'

function block(...lines: readonly string[]): string {
  return `${HEAD}spec:\n  podCIDRs: [10.1.0.0/16]\n${lines.map((line) => `  ${line}\n`).join('')}`
}

const spec = { kubernetes: {}, podCIDRs: ['10.1.0.0/16'], serviceCIDRs: [], labels: { region: 'south' } }
const written = {
  ...{ apiVersion: 'sealane.io/v1alpha1', kind: 'Site', metadata: { name: 'roma' } },
  spec: { ...spec, allowedNamespaces: ['kube-tools', 'default'], dns: { listen: ['0.0.0.0:5353'] } },
}

/** These files allow `default`, and the agent reads them so. */
const HONEST: Readonly<Record<string, string>> = {
  'as sealane join writes it': formatYaml(written),
  'one line': block('allowedNamespaces: [default]'),
  'one line among others': block('allowedNamespaces: [kube-a, "default" , \'kube-b\']', 'labels: {a: b}'),
  'one line with comments': block('allowedNamespaces: [ default ]  # why not'),
  'several lines in brackets': block('allowedNamespaces: [', '  kube-a,', '  default,', ']'),
  items: block('allowedNamespaces:', '  - kube-a', '  - "default"', 'labels: {a: b}'),
  'items that are not indented': block('allowedNamespaces:', "- 'default'", '- kube-a'),
  'items with comments': block(
    '# a',
    'allowedNamespaces: # b',
    '',
    '  # c',
    '  - kube-a # d',
    '  - default # e',
    '# f',
  ),
  'the last word of the file': block('allowedNamespaces:', '  - default').trimEnd(),
  'first of all': `---\n${HEAD}spec:\n  allowedNamespaces: [default]\n  podCIDRs: [10.1.0.0/16]\n`,
  'after a text of several lines': block('description: |', '  # kube-a', '', '  [more', 'allowedNamespaces: [default]'),
  'after apostrophes': block("description: Roma's and Ostia's", 'allowedNamespaces: [default]'),
  'after escaped quotes': block('description: "a \\"b\\" \\\\"', "labels: {a: ''}", 'allowedNamespaces: [default]'),
  'after doubled apostrophes': block("description: '''a'' isn''t'''", 'allowedNamespaces: [default]'),
  'after an empty text': block('description: ""', 'allowedNamespaces: [default]'),
  'after an empty text in apostrophes': block("description: '' # a", 'allowedNamespaces: [default]'),
  'after a comment with a quotation mark': block('labels: {a: "b"} # the "old', 'allowedNamespaces: [default]'),
  'metadata of several lines': block('allowedNamespaces: [default]').replace('{name: roma}', '\n  name: roma\n# a'),
}

/** These files do not allow `default`, or it is unclear whether they do. */
const HOSTILE: Readonly<Record<string, string>> = {
  'no list': block(),
  'an empty list': block('allowedNamespaces: []'),
  'a comment after an empty list': block('allowedNamespaces: [] # never default'),
  'a comment that looks like a list': block('allowedNamespaces: [] # [default]', '  # - default', '# - default'),
  'a comment among items': block('allowedNamespaces:', '  # not default', '  # - default', '  - kube-a # default'),
  'a comment that is a key': block('# allowedNamespaces: [default]', '#allowedNamespaces: [default]'),
  'the next list': block('allowedNamespaces:', 'serviceCIDRs:', '  - default'),
  'a list after an empty one': block('allowedNamespaces: []', 'labels: [default]'),
  'longer names': block('allowedNamespaces: [default-x, x-default, xdefault, defaultx, kube-default]'),
  'longer items': block('allowedNamespaces:', '  - default-x', '  - x-default', '  - default.x', '  - default#x'),
  'a name of two words': block('allowedNamespaces: [not default]'),
  'an item of two lines': block('allowedNamespaces:', '  - not', '    default'),
  'an item that goes on': block('allowedNamespaces:', '  - default', '    not'),
  'an item that goes on after a comment': block('allowedNamespaces:', '  - default', '  # a', '    not'),
  'an item that looks like two': block('allowedNamespaces:', '- not', '  - default'),
  'a list in a list': block('allowedNamespaces: [[default]]'),
  'a map': block('allowedNamespaces: {default: x}'),
  'a text': block('allowedNamespaces: default'),
  'a text with brackets': block('allowedNamespaces: "[default]"'),
  'an item with more': block('allowedNamespaces: [default: x]'),
  'a list that does not end': block('allowedNamespaces: [default'),
  'something after the list': block('allowedNamespaces: [default] x'),
  'in a text of several lines': block('description: |', '  allowedNamespaces: [default]'),
  'in a text of several lines, with little indentation': block('description: |1', ' allowedNamespaces: [default]'),
  'in a quoted text': block('description: "', '  allowedNamespaces: [default]', '  "'),
  'in a quoted text with too little indentation': block('description: "', 'allowedNamespaces: [default]', '"'),
  'in a quoted text after an escaped quote': block('description: "a\\"', 'allowedNamespaces: [default]', '"'),
  'in a text in apostrophes after two of them': block("description: 'a''", 'allowedNamespaces: [default]', "'"),
  'in a text with a tag': block('description: !!str "', 'allowedNamespaces: [default]', '"'),
  'in a quoted text of one line': block('description: "x: allowedNamespaces: [default]"'),
  'in a label': block('labels: {allowedNamespaces: default}'),
  'in labels of several lines': block('labels: {', 'allowedNamespaces: [default]', '}'),
  'below another key': block('labels:', '  allowedNamespaces: [default]'),
  'a longer key': block('disallowedNamespaces: [default]', 'allowedNamespacesBefore: [default]'),
  'in metadata':
    HEAD.replace('{name: roma}', '\n  allowedNamespaces: [default]') + 'spec:\n  podCIDRs: [10.1.0.0/16]\n',
  'in an annotation': block().replace(
    '{name: roma}',
    '\n  name: roma\n  annotations:\n    a: |\n      spec:\n        allowedNamespaces: [default]',
  ),
  'at the top': `${HEAD}allowedNamespaces: [default]\nspec:\n  podCIDRs: [10.1.0.0/16]\n`,
  'after spec': `${block()}status:\n  allowedNamespaces: [default]\n`,
  'in another document': `kind: Other\n---\n${block('allowedNamespaces: [default]')}`,
  'a file that is a text': `--- |\nspec:\n  allowedNamespaces: [default]\n`,
  'after a line that YAML ends and nobody sees': block('description: x #\rallowedNamespaces: [default]'),
  'deeper than the other keys': `${HEAD}spec:\n  podCIDRs: [10.1.0.0/16]\n    allowedNamespaces: [default]\n`,
  'less deep than the other keys': `${HEAD}spec:\n    podCIDRs: [10.1.0.0/16]\n  allowedNamespaces: [default]\n`,
}

/** These files allow `default` in another form than `sealane join` writes, which a pattern cannot read reliably. */
const OTHERWISE: Readonly<Record<string, string>> = {
  JSON: JSON.stringify(written),
  'four spaces': `${HEAD}spec:\n    podCIDRs: [10.1.0.0/16]\n    allowedNamespaces: [default]\n`,
  'spec in braces': `${HEAD}spec: {podCIDRs: [10.1.0.0/16], allowedNamespaces: [default]}\n`,
  'a comment in brackets': block('allowedNamespaces: [ # all', '  default]'),
  'lines of Windows': block('allowedNamespaces: [default]').replaceAll('\n', '\r\n'),
}

t.test('which guarded namespaces a site file opens', async (t) => {
  t.ok(PATTERN.length > 0, 'the pattern is found')
  // RE2, which API servers use, has neither lookaround nor references.
  t.notMatch(PATTERN, /\(\?(?!:)|\\[1-9]|\\k/, 'no lookaround and no reference')
  // The API server's cost of a match is a tenth for each character of the file, times a quarter for each character of
  // the pattern.
  const longest = PATTERN.replaceAll(WANTED, 'n'.repeat(63))
  const cost = Math.ceil((20 * 1024 + 1) / 10) * Math.ceil(longest.length / 4)
  t.ok(cost < 950_000, `a file of 20 KiB is within the limit of an expression for every name: ${cost} of 1000000`)
  for (const [name, site] of Object.entries(HONEST)) {
    t.ok(readBy(site)?.includes('default'), `${name}: the agent reads it`)
    t.ok(opens(site, 'default'), `${name}: open`)
    t.notOk(opens(site, 'kube-system'), `${name}: another is not`)
    for (const other of readBy(site) ?? []) t.ok(opens(site, other), `${name}: ${other} is open`)
  }
  for (const [name, site] of Object.entries(HOSTILE)) {
    t.notOk(readBy(site)?.includes('default'), `${name}: the agent does not read it so`)
    t.notOk(opens(site, 'default'), `${name}: closed`)
  }
  for (const [name, site] of Object.entries(OTHERWISE)) {
    t.ok(readBy(site)?.includes('default'), `${name}: the agent reads it`)
    t.notOk(opens(site, 'default'), `${name}: closed`)
  }
})

t.test('the agent writes only conditions of a Gateway: every other field stays, also if it is absent', async (t) => {
  const status = GATEWAY.spec.versions[0]?.schema?.openAPIV3Schema?.properties?.['status']
  const fields = Object.keys(status?.properties ?? {}).filter((field) => field !== 'conditions')
  t.ok(fields.includes('connections'), 'the fields are found')
  const [{ expression } = { expression: '' }] = specOf('sealane-agent-gateway-status')?.validations ?? []
  for (const field of fields) {
    const [now, before] = [`object.status.${field}`, `oldObject.status.${field}`]
    const isSame = `${now} == ${before}`
    const isRequired = status?.required?.includes(field) === true
    const want = isRequired ? isSame : `has(${now}) == has(${before}) && (!has(${now}) || ${isSame})`
    t.ok(` ${expression} `.includes(` ${want} `), `${field} stays`)
  }
})
