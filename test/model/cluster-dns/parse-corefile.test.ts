import fc from 'fast-check'
import t from 'tap'
import { CorefileError, parseCorefile } from '../../../model/cluster-dns/parse-corefile.ts'
import { ALL, arbitraryCorefile } from '../../support/corefiles.ts'

/** Returns the items of the top level: `names: plugin plugin`, `(snippet)`, `import pattern`. */
function said(text: string): string[] {
  return parseCorefile(text).items.map((item) => {
    if (item.kind === 'import') return `import ${item.pattern}`
    if (item.kind === 'snippet') return `(${item.name})`
    return `${item.keys.join(' ')}: ${item.directives.map((directive) => directive.name).join(' ')}`
  })
}

function problem(text: string): string {
  try {
    return `understood: ${said(text).join('; ')}`
  } catch (error) {
    if (!(error instanceof CorefileError)) throw error
    return error.message
  }
}

t.test('what is at the top of the Corefiles of distributions', async (t) => {
  t.same(said(ALL['KUBEADM'] ?? ''), [
    '.:53: errors health ready kubernetes prometheus forward cache loop reload loadbalance',
  ])
  t.same(said(ALL['K3S'] ?? ''), [
    '.:53: errors health ready kubernetes hosts prometheus cache loop reload loadbalance import forward',
    'import /etc/coredns/custom/*.server',
  ])
  t.same(said(ALL['ODD'] ?? ''), [
    '(logging)',
    '.:5353 dns://example.org:5353: import template forward',
    'tls://example.org: tls whoami',
    'import conf.d/*.conf',
  ])
})

t.test('small ones', async (t) => {
  const rows: [string, string[]][] = [
    ['', []],
    ['# nothing', []],
    ['\uFEFF. {\n}', ['.: ']],
    ['a b,\nc {\n}', ['a b c: ']],
    ['a\n{\nerrors\n}\nb {\n}', ['a: errors', 'b: ']],
    ['a { errors\n} b { log\n}', ['a: errors', 'b: log']],
    ['a {\nlog {\nx {\n}\n}\n}', ['a: log']],
    ['a {\nlog\n{\n}\n}', ['a: log']],
    ['a {\nimport x\nlog {\nimport y\n}\n}', ['a: import log']],
    ['a {\nlog "}\n{" # }\n}', ['a: log']],
    ['a {\nfile a#b c\n}', ['a: file']],
    ['a {\r\nlog\r\n}\r\n', ['a: log']],
    ['a {\nrewrite "\\"{" \n}', ['a: rewrite']],
  ]
  for (const [text, want] of rows) t.same(said(text), want, JSON.stringify(text))
})

t.test('what is refused, with its line', async (t) => {
  const rows: [string, string][] = [
    ['.:53\nerrors\nlog', 'line 1: ".:53" has no block in braces; put one around its plugins'],
    ['.:53 {\n}\nexample.org', 'line 3: "example.org" has no block in braces'],
    ['.:53 {\n  errors\n', 'line 1: the brace that opens here is not closed'],
    ['.:53 {\n  log {\n}\n', 'line 1: the brace that opens here is not closed'],
    ['.:53 {\n  log {\n', 'line 2: the braces of "log" are not closed'],
    ['.:53 {\n errors }\n', 'line 2: a } that nothing opened; it must begin its own line'],
    ['.:53 {\n}\n}\n', 'line 3: "}" where a name should be'],
    ['{\n}\n', 'line 1: a name is missing before {'],
    ['a, {\n}\n', 'line 1: a name is missing before {'],
    ['a,', 'line 1: "a" has no block in braces'],
    ['\n\n. {\n log "x\n}\n', 'line 4: a quoted word begins here and does not end'],
    ['import\n', 'line 1: import without a file or snippet'],
    ['import a b\n', 'line 1: import takes one file or snippet'],
    ['(x) {\n errors\n', 'line 1: the brace that opens here is not closed'],
    ['(x) {\n}\n(x) {\n}\n', 'line 3: a second snippet "x"'],
    ['"" {\n}', 'line 1: "" where a name should be'],
  ]
  for (const [text, want] of rows) t.equal(problem(text), want, JSON.stringify(text))
})

t.test('anything at all is understood or refused', async () => {
  const pieces = fc.constantFrom(
    '.',
    ' ',
    '\n',
    '{',
    '}',
    '"',
    '\\',
    '#',
    ',',
    'import',
    '(a)',
    'x',
    '\r',
    '\t',
    '\uFEFF',
    '{$A}',
  )
  const text = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 200 }),
    fc.array(pieces, { maxLength: 40 }).map((all) => all.join('')),
  )
  fc.assert(
    fc.property(text, (text) => {
      problem(text)
    }),
    { numRuns: 3000 },
  )
})

t.test('items follow each other, and between them is nothing but space and comments', async () => {
  fc.assert(
    fc.property(fc.oneof(arbitraryCorefile, fc.constantFrom(...Object.values(ALL))), (text) => {
      let at = 0
      for (const { start, end } of parseCorefile(text).items) {
        const between = text.slice(at, start)
        if (start < at || end <= start || !between.split('\n').every((line) => /^\s*(#.*)?$/.test(line))) return false
        at = end
      }
      return true
    }),
  )
})
