/** The allowed imports between folders (docs/architecture.md), with a reason for each ban. */
import { dirname, join, normalize } from 'node:path'
import t from 'tap'
import { COMPONENTS, FOUNDATIONS, PRODUCT, importsOf, sourceFiles } from '../support/source-tree.ts'
import { circlesIn } from './support/circles.ts'

/** The folders that each folder may import besides itself. */
const MAY: Readonly<Record<string, readonly string[]>> = {
  model: [],
  reconcile: [],
  runtime: ['model', 'reconcile'],
  protocol: ['model', 'reconcile', 'runtime'],
  kubeapi: ['model', 'reconcile', 'runtime'],
  kernel: ['model', 'reconcile', 'runtime'],
  // install/ reads the version and the image name from package.json.
  install: ['model', 'package.json'],
  explain: ['model'],
  broker: ['model', 'protocol', 'reconcile', 'runtime'],
  agent: ['model', 'protocol', 'kubeapi', 'reconcile', 'runtime'],
  gateway: ['model', 'kubeapi', 'kernel', 'reconcile', 'runtime'],
  routeagent: ['model', 'kubeapi', 'kernel', 'reconcile', 'runtime'],
  dns: ['model', 'kubeapi', 'reconcile', 'runtime'],
  relay: ['model', 'protocol', 'reconcile', 'runtime'],
  console: ['model', 'kubeapi', 'explain', 'reconcile', 'runtime'],
  cli: ['model', 'protocol', 'kubeapi', 'install', 'explain', 'reconcile', 'runtime', 'compose'],
  compose: [...FOUNDATIONS, ...COMPONENTS],
}

const WHY: Readonly<Record<string, string>> = {
  model: 'the vocabulary depends on nothing, so that everything can depend on it',
  install: 'what is installed is a function of values: no drivers',
  explain: 'what is said about health is a function of facts: no drivers, no clock',
  broker: 'the broker needs no API server and touches no kernel',
  agent: 'the agent runs without privileges: no kernel',
  gateway: 'a gateway must work while the broker is away: no protocol',
  routeagent: 'a routeagent must work while the broker is away: no protocol',
  dns: 'dns answers from the local API alone: no protocol, no kernel',
  relay: 'a relay knows authorities and datagrams: no API server, no kernel, no gateway',
  console: 'the console shows what others find out: no protocol, no kernel',
  cli: 'the command line starts components by compose/ only',
}

const PACKAGE_HOME: Readonly<Record<string, string>> = {
  netlink: 'kernel',
  '@grpc/grpc-js': 'protocol',
  '@peculiar/x509': 'protocol',
  '@bufbuild/protobuf': 'protocol',
  'reflect-metadata': 'protocol',
  dns2: 'dns',
  pino: 'runtime',
  'prom-client': 'runtime',
  yaml: 'kubeapi',
  '@kubernetes/client-node': 'kubeapi',
  ws: 'kubeapi',
  zod: 'kubeapi',
  commander: 'cli',
  preact: 'console',
  '@preact/signals': 'console',
  cytoscape: 'console',
  uplot: 'console',
  'ipaddr.js': 'model',
}

/** Further folders that may import a package, each with the reason. */
const ALSO_AT: Readonly<Record<string, { readonly packages: readonly string[]; readonly why: string }>> = {
  'runtime/datagrams/': {
    packages: ['ws'],
    why: 'gateways and relays exchange datagrams over WebSockets, and neither knows kubeapi/ by its sockets of pods',
  },
  'explain/facts/': {
    packages: ['zod'],
    why: 'facts are checked where they are read, and explain/ imports no driver',
  },
  'explain/path/': {
    packages: ['zod'],
    why: 'type and published schema of what explain answers follow from one description',
  },
  'protocol/admin/': {
    packages: ['zod'],
    why: 'requests of operators are checked where they arrive',
  },
  'model/kinds/': {
    packages: ['zod'],
    why: 'type, CRD and checks of a kind follow from one description; the vocabulary takes its types alone',
  },
  'model/schemas/': {
    packages: ['zod'],
    why: 'what an object must look like stands beside its type; whoever needs the vocabulary alone does not import it',
  },
  'broker/store/etcd/client/': {
    packages: ['@grpc/grpc-js', '@bufbuild/protobuf'],
    why: "etcd's wire is spoken by the broker alone; in protocol/ every component that speaks with a broker would have it",
  },
}

/** Matches pure files, which may import only the vocabulary, value types and pure files beside them. */
const PURE = /(^|\/)(plan-[a-z0-9-]+|answer|admission|allocation)\.ts$/

function folderOf(path: string): string {
  return path.split('/')[0] ?? ''
}

const files = sourceFiles(/\.ts$/, PRODUCT)

function localTargets(path: string, text: string): string[] {
  return importsOf(text)
    .filter((name) => name.startsWith('.'))
    .map((name) => normalize(join(dirname(path), name)))
}

t.test('folders import only what the table lets them', async (t) => {
  for (const { path, text } of files) {
    const from = folderOf(path)
    for (const target of localTargets(path, text)) {
      const to = folderOf(target)
      if (to === from || MAY[from]?.includes(to)) continue
      t.fail(`${path} imports ${target}: ${WHY[from] ?? 'foundations do not know each other this way'}`)
    }
  }
  t.ok(files.length > 50, 'there are files to judge')
})

/**
 * Only this room knows the technology of a link, so a new kind of tunnel is a new folder in it and changes nothing
 * else.
 */
const CABLES = 'gateway/cable/'
const DRIVERS = /^(kernel\/wireguard|gateway\/cable\/[^/]+)\//

t.test('outside gateway/cable/ nobody in the gateway knows what makes a link', async (t) => {
  const why =
    'a far end is an Endpoint with an identity that is only compared; ask the Cable (gateway/cable/cable-driver.ts)'
  const others = files.filter(({ path }) => path.startsWith('gateway/') && !path.startsWith(CABLES))
  for (const { path, text } of others) {
    for (const target of localTargets(path, text)) {
      if (DRIVERS.test(target)) t.fail(`${path} imports ${target}: ${why}`)
    }
    if (/publicKey|privateKey/i.test(text)) t.fail(`${path} speaks of a key: ${why}`)
  }
  t.ok(others.length > 30, 'there are files to judge')
})

t.test('what dns answers does not depend on who asks it how', async (t) => {
  const why = 'an answer follows from the zone alone; numbers that both sides know stand in dns/message/wire.ts'
  for (const { path, text } of files.filter(({ path }) => path.startsWith('dns/zone/'))) {
    for (const target of localTargets(path, text)) {
      if (/^dns\/(server|forward)\//.test(target)) t.fail(`${path} imports ${target}: ${why}`)
    }
  }
})

/** The beginnings of the paths that each folder may import. */
const DEMOS: Readonly<Record<string, { readonly may: readonly string[]; readonly why: string }>> = {
  demo: {
    may: ['demo/', 'model/', 'scripts/'],
    why: 'a demo shows what users have: it knows the command line, and of the product the vocabulary alone',
  },
  'demo/kube': {
    may: ['demo/', 'model/', 'scripts/', 'test/kube/support/', 'test/support/'],
    why: 'the clusters that it shows are those of the kube tier, and nothing else of the tests',
  },
}

t.test('demos know the product by its command line', async (t) => {
  const demos = sourceFiles(/\.ts$/, ['demo'])
  for (const { path, text } of demos) {
    const rule = DEMOS[path.startsWith('demo/kube/') ? 'demo/kube' : 'demo']
    for (const target of localTargets(path, text)) {
      if (rule?.may.some((beginning) => target.startsWith(beginning)) === true) continue
      t.fail(`${path} imports ${target}: ${rule?.why ?? ''}`)
    }
    if (!path.startsWith('demo/kube/')) t.notMatch(localTargets(path, text).join('\n'), /^demo\/kube\//m, path)
  }
  t.ok(demos.length > 10, 'there are files to judge')
})

t.test('imports go round in no circle', async (t) => {
  const graph = new Map(files.map(({ path, text }) => [path, localTargets(path, text)]))
  t.same(circlesIn(graph), [])
  t.same(circlesIn(new Map(Object.entries({ a: ['b'], b: ['c'], c: ['b'], d: ['a'], e: ['e'] }))), ['b, c', 'e'])
})

t.test('each npm package is imported from one folder', async (t) => {
  for (const { path, text } of files) {
    for (const name of importsOf(text).filter((name) => !name.startsWith('.') && !name.startsWith('node:'))) {
      const home = Object.keys(PACKAGE_HOME).find((known) => name === known || name.startsWith(`${known}/`))
      if (home === undefined) t.fail(`${path} imports ${name}, which has no home in this test`)
      else if (PACKAGE_HOME[home] !== folderOf(path) && !isAlsoAt(path, home))
        t.fail(`${path} imports ${name}: only ${PACKAGE_HOME[home] ?? ''}/ may`)
    }
  }
})

function isAlsoAt(path: string, name: string): boolean {
  return Object.entries(ALSO_AT).some(([room, { packages }]) => path.startsWith(room) && packages.includes(name))
}

t.test('plans are pure: no effects, clocks or drivers', async (t) => {
  for (const { path, text } of files.filter(({ path }) => PURE.test(path))) {
    for (const name of importsOf(text).filter((name) => !name.startsWith('.'))) {
      if (name !== 'node:crypto') t.fail(`${path} imports ${name}: a plan is a function of its inputs`)
    }
    for (const call of text.matchAll(/\b(Date\.now|Math\.random|setTimeout|process\.env)\b/g)) {
      t.fail(`${path} uses ${call[0]}: a plan is a function of its inputs`)
    }
  }
})

t.test('time and chance come from the injected clock', async (t) => {
  for (const { path, text } of files.filter(({ path }) => path !== 'reconcile/clock.ts')) {
    for (const call of text.matchAll(/\b(Date\.now|Math\.random|setTimeout|setInterval)\(/g)) {
      t.fail(`${path} uses ${call[0]}: take a Clock`)
    }
  }
})

/** Ways to load a module without `import`, which the checks above do not see, with the files that may use them. */
const PAST_IMPORT: Readonly<Record<string, readonly string[]>> = {
  createRequire: ['runtime/metrics/prometheus-metrics.ts'],
  getBuiltinModule: ['runtime/http/node-http.ts'],
}

t.test('what is loaded without an import is loaded in one place', async (t) => {
  for (const [way, places] of Object.entries(PAST_IMPORT)) {
    const found = files.filter(({ text }) => text.includes(`${way}(`)).map(({ path }) => path)
    t.same(found.sort(), [...places].sort(), way)
  }
})
