import fc from 'fast-check'
import t from 'tap'
import { CorefileError, parseCorefile } from '../../../model/cluster-dns/parse-corefile.ts'
import {
  type ForwardBlock,
  addForwardBlock,
  claimsOn,
  reloadsItself,
  removeForwardBlock,
  topImports,
} from '../../../model/cluster-dns/forward-block.ts'
import {
  AKS,
  ALL,
  K3S,
  KUBEADM,
  NODE_LOCAL,
  ODD,
  RKE2,
  SUBMARINER,
  arbitraryCorefile,
} from '../../support/corefiles.ts'

const BLOCK: ForwardBlock = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }
const OTHER: ForwardBlock = { domain: 'clusterset.local', forwardTo: '[fd00::99]:5353' }

const ADDED = `# sealane begin
# Written by sealane; "sealane leave" removes it. Changes between these two lines are lost.
clusterset.local:53 {
    errors
    cache 5
    loadbalance
    forward . 10.43.0.99 {
        max_fails 1
    }
}
# sealane end`

function refusal(action: () => unknown): string {
  try {
    action()
    return 'done'
  } catch (error) {
    if (!(error instanceof CorefileError)) throw error
    return error.message
  }
}

/** Snippets s0, s1 and so on; each imports the next one twice. */
function doubling(levels: number): string {
  const each = Array.from({ length: levels }, (_, i) => `(s${i}) {\n import s${i + 1}\n import s${i + 1}\n}\n`)
  return `${each.join('')}(s${levels}) {\n errors\n}\n`
}

t.test('the block is put at the end', async (t) => {
  t.equal(addForwardBlock(KUBEADM, BLOCK), `${KUBEADM}${ADDED}\n`)
  t.equal(addForwardBlock(RKE2, BLOCK), `${RKE2}\n${ADDED}`, 'without a line end, as the file')
})

t.test('it listens where the block for ordinary names does', async (t) => {
  const head = (text: string): string[] =>
    addForwardBlock(text, BLOCK).slice(text.length).trim().split('\n').slice(2, 4)
  t.same(head('. {\n}\n'), ['clusterset.local {', '    errors'])
  t.same(head('dns://.:8053 {\n}\n'), ['clusterset.local:8053 {', '    errors'])
  t.same(head('.:53 .:5353 tls://.:853 {\n}\n'), ['clusterset.local:53 clusterset.local:5353 {', '    errors'])
  t.same(head('.:53 {\n}\ncluster.local:1053 {\n kubernetes cluster.local\n}\n')[0], 'clusterset.local:1053 {')
  t.same(head(ODD), ['clusterset.local:5353 {', '    errors'])
  t.same(head(NODE_LOCAL), ['clusterset.local:53 {', '    bind 169.254.20.10 10.43.0.10'])
  const bound = ['clusterset.local:53 {', '    bind 169.254.20.10']
  t.same(
    head('(c) {\n bind 169.254.20.10\n cache 30\n}\n.:53 {\n import c\n forward . 1.1.1.1\n}\n'),
    bound,
    'a snippet',
  )
  t.same(head('(c) { bind 169.254.20.10 }\n.:53 { import c\n}\n'), bound, 'in one line')
  t.same(
    head('(b) {\n bind 169.254.20.10\n}\n(c) {\n import b\n}\n.:53 {\n import c\n import x/*.override\n}\n'),
    bound,
    'a snippet of a snippet, beside a folder of additions',
  )
  const kubernetes =
    '(k) {\n kubernetes cluster.local\n bind 169.254.20.10\n}\n.:54 {\n}\ncluster.local:53 {\n import k\n}\n'
  t.same(
    head('(x) {\n example.org {\n  whoami\n }\n}\nimport x\n.:53 {\n bind 169.254.20.10\n}\n'),
    bound,
    'a snippet of server blocks',
  )
  t.same(head(kubernetes), bound, 'the plugin kubernetes of a snippet')
})

t.test('what it cannot be added to', async (t) => {
  const rows: [string, string][] = [
    ['', 'line 1: there is no block for "." and none with the plugin kubernetes'],
    ['example.org {\n}\n', 'line 1: there is no block for "." and none with the plugin kubernetes'],
    ['. {\n}\n{$ZONE} {\n}\n', 'line 3: a name comes from an environment variable, so its owner is unknown'],
    ['.:53 {\n import /etc/c/base\n}\n', 'line 2: the block imports "/etc/c/base", a file that may hold its bind'],
    ['(c) {\n import d\n}\n. {\n import c\n}\n', 'line 2: the block imports "d", a file that may hold its bind'],
    ['(c) {\n import c\n}\n. {\n import c\n}\n', 'line 2: the snippet "c" imports itself'],
    [`${doubling(25)}.:53 {\n import s0\n}\n`, 'line 86: the imported snippets have more than 1000 plugins'],
    ['.\nerrors\n', 'line 1: "." has no block in braces; put one around its plugins'],
    [
      '# sealane begin\n. {\n}\n',
      'line 1: expected one comment "sealane begin" and one "sealane end" after it; remove the rest by hand',
    ],
    [
      '# sealane end\n. {\n}\n# sealane begin\n',
      'line 1: expected one comment "sealane begin" and one "sealane end" after it; remove the rest by hand',
    ],
    [
      '. {\n# sealane begin\n}\n# sealane end\n',
      'line 2: the comment "sealane begin" is not on a line of its own between blocks',
    ],
    [
      '. {\n} # sealane begin\n# sealane end\n',
      'line 2: the comment "sealane begin" is not on a line of its own between blocks',
    ],
    [
      `${addForwardBlock(KUBEADM, BLOCK)}${ADDED}\n`,
      'line 35: expected one comment "sealane begin" and one "sealane end" after it; remove the rest by hand',
    ],
  ]
  for (const [text, want] of rows)
    t.equal(
      refusal(() => addForwardBlock(text, BLOCK)),
      want,
      JSON.stringify(text),
    )
})

t.test('an address that changes is changed in place, and what was written below stays', async (t) => {
  const below = `${addForwardBlock(KUBEADM, BLOCK)}example.org {\n    whoami\n}`
  const changed = addForwardBlock(below, OTHER)
  t.equal(changed, below.replace('forward . 10.43.0.99', 'forward . [fd00::99]:5353'))
  t.equal(removeForwardBlock(changed), `${KUBEADM}example.org {\n    whoami\n}`)
})

t.test('beside a file that may hold a bind, a block that is there keeps its ports and binds', async (t) => {
  const importing = '.:53 {\n import /etc/coredns/extra.conf\n}\n'
  const own = ADDED.replace('    errors', '    bind 169.254.20.10 fd00::1\n    errors').replace(
    ':53',
    ':53 clusterset.local:5353',
  )
  t.equal(
    addForwardBlock(`${importing}${own}\n`, OTHER),
    `${importing}${own.replace('10.43.0.99', '[fd00::99]:5353')}\n`,
  )
  const foreign = own.replace('clusterset.local:5353', 'example.org')
  t.match(
    refusal(() => addForwardBlock(`${importing}${foreign}\n`, OTHER)),
    'a file that may hold its bind',
  )
  t.equal(
    refusal(() => addForwardBlock(`${doubling(8)}.:53 {\n import s0\n}\n`, BLOCK)),
    'done',
  )
})

t.test('changes inside our block are lost, also wrong ones that are in balance', async (t) => {
  const edited = addForwardBlock(KUBEADM, BLOCK).replace('cache 5', 'cache 3600\n    log')
  t.equal(addForwardBlock(edited, BLOCK), addForwardBlock(KUBEADM, BLOCK))
  t.equal(removeForwardBlock(edited), KUBEADM)
})

t.test('words in quotes are no markers', async (t) => {
  const text = '. {\n    log "\n# sealane begin\n"\n}\n'
  t.equal(removeForwardBlock(text), text)
  t.equal(removeForwardBlock(addForwardBlock(text, BLOCK)), text)
})

t.test('added, then removed: the file from before, to the byte', async () => {
  fc.assert(
    fc.property(fc.oneof(arbitraryCorefile, fc.constantFrom(...Object.values(ALL))), (text) => {
      const added = addForwardBlock(text, BLOCK)
      return removeForwardBlock(added) === text && removeForwardBlock(text) === text
    }),
    { numRuns: 1000 },
  )
})

t.test('added twice, or with another address between: as added once', async () => {
  fc.assert(
    fc.property(arbitraryCorefile, (text) => {
      const once = addForwardBlock(text, BLOCK)
      const other = addForwardBlock(once, OTHER)
      return (
        addForwardBlock(once, BLOCK) === once &&
        addForwardBlock(other, BLOCK) === once &&
        removeForwardBlock(other) === text
      )
    }),
    { numRuns: 1000 },
  )
})

t.test('everything else is what it was: names, plugins, their words, and their order', async () => {
  const shape = (text: string): unknown =>
    parseCorefile(text).items.map((item) =>
      item.kind === 'server'
        ? [item.keys, item.directives.map(({ tokens }) => tokens.map((token) => token.text))]
        : item.kind === 'snippet'
          ? [item.name, item.tokens.map((token) => token.text)]
          : item.pattern,
    )
  fc.assert(
    fc.property(arbitraryCorefile, (text) => {
      const after = shape(addForwardBlock(text, BLOCK)) as unknown[]
      return JSON.stringify(after.slice(0, -1)) === JSON.stringify(shape(text))
    }),
    { numRuns: 1000 },
  )
})

t.test('who else answers the zone', async (t) => {
  const claims = (text: string): string[] =>
    claimsOn(text, 'clusterset.local').map(({ line, what }) => `${line} ${what}`)
  const within = (plugins: string): string[] => claims(`.:53 {\n${plugins}\n}\n`)
  for (const [name, text] of Object.entries(ALL))
    t.same(claims(addForwardBlock(text, BLOCK)), [], `${name}: ours is no claim`)
  t.same(claims(SUBMARINER), ['2 server block clusterset.local:53'])
  t.same(claims('. {\n}\nsvc.ClusterSet.local. {\n}\n'), ['3 server block svc.ClusterSet.local.'])
  t.same(within('kubernetes cluster.local clusterset.local {\n multicluster clusterset.local\n}'), [
    '2 plugin kubernetes',
  ])
  t.same(within('errors\nforward clusterset.local 10.0.0.1'), ['3 plugin forward'])
  t.same(within('forward . 10.0.0.1 {\n except clusterset.local\n}\nlog clusterset.local'), [])
  t.same(claims('(a) {\n forward clusterset.local. 10.0.0.1\n}\n. {\n import a\n}\n'), ['2 snippet (a)'])
  t.same(claims('notclusterset.local {\n}\n'), [])
})

t.test('whether it reads its file again, and what it imports', async (t) => {
  t.same(Object.values(ALL).map(reloadsItself), [true, true, true, true, true, false])
  t.equal(reloadsItself('. {\n hosts x {\n reload 5s\n }\n}\n(a) {\n hosts x {\n reload 5s\n }\n}\n'), false)
  t.equal(reloadsItself('(a) {\n reload\n}\n. {\n import a\n}\n'), true)
  t.same([K3S, AKS, ODD, KUBEADM].map(topImports), [
    ['/etc/coredns/custom/*.server'],
    ['custom/*.server'],
    ['conf.d/*.conf'],
    [],
  ])
})
