/** The tiers of tests: what each needs and how its files are run. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { buildAll } from './kube/support/build-all.ts'
import { kubeProgramsMissing } from './kube/support/kube-programs.ts'
import { buildProduct } from './support/compiled-program.ts'
import { PRODUCT } from './support/source-tree.ts'
import type { Turns } from './turns.ts'

export interface Tier {
  readonly name: string
  readonly folders: readonly string[]
  /** Why it cannot run here; undefined when it can. */
  skip(): Promise<string | undefined>
  /** Whether it runs beside the tiers next to it that do so too: what it shows takes no real time. */
  readonly beside?: boolean
  /** How many processes run at once. */
  readonly jobs: number
  /** In how many processes all files run, one after the other in each. Default: each file has one of its own. */
  readonly batches?: number
  /** How many while processors are idle: most of what a file does may be waiting. Default: `jobs`. */
  readonly most?: number
  /** How long one file may take. */
  readonly seconds: number
  /**
   * Files that take long begin before the others, in this order, so that none of them is the last and runs by itself:
   * the longest first.
   */
  readonly long?: readonly RegExp[]
  /** Files that take turns where a turn is named: see turns.ts. The other files always run. */
  readonly turns?: readonly Turns[]
  /** How many files `--changed` runs, those nearest to the change. Default: all that the change reaches. */
  readonly nearest?: number
  /** Its tests look at all files of the project: any change reaches them. */
  readonly looksAtAll?: boolean
  /** Files that run after the others, with nothing beside them. */
  readonly alone?: RegExp
  /** Whether a file that fails is run once more, alone: what it shows takes real time, and the machine may be busy. */
  readonly rerun?: boolean
  /** Makes what the files need, before their time begins; throws with why it cannot. */
  prepare?(): Promise<void>
}

/** Of gateways too, but they wait more than they work: they begin before the others, and have others beside them. */
const WAITING = [
  /\/(monitoring|gateway-nat)\./,
  /\/(gateway-smoke|sites-smoke)\./,
  /\/gateway-(dual-stack|life|link|made-anew|restarts)\./,
]
/** Emulated, they take longest, and a whole processor each: a guest has one, and two guests run at once. */
const GATEWAYS = /\/gateway-/
/**
 * More than three clusters; gateways that hand over and clean their node; and what is lost meanwhile, which is counted.
 */
const CLUSTERS = /five-clusters|node-life|several-gateways/
/** A minute and more on several clusters, a part of it waiting for what Kubernetes does in its own time. */
const LONG = [
  /install\.|repair/,
  /several-gateways|node-life/,
  /image\./,
  /broker-replicas|day-two/,
  /joined-clusters|leaving/,
  /dual-stack/,
  /bad-days|bad-minute/,
]

/** What stands for a cluster in the kube tier: its own tests run where it has changed. */
const RIG =
  /^test\/(test-kubelet\/|kube\/(cmd|coredns|render|conformance|support)\/|kube\/(go\.|run-conformance)|support\/netns)/

/** Shares that are as near as can be of one length, two files at once: seven to ten minutes each. */
const KUBE_TURNS: readonly Turns[] = [
  {
    shares: [
      /\/(install|dual-stack|dual-stack-overlap)\.test/,
      /\/(several-gateways|five-clusters)\.test/,
      /\/(node-life|leaving|joined-clusters)\.test/,
      /\/(repair|broker-replicas|day-two|image)\.test/,
    ],
  },
  {
    shares: [
      /\/(control-plane|program)\.test/,
      /\/(test-kubelet|build-programs)\.test/,
      /\/(test-kubelet-life|conformance-report)\.test/,
      /\/(dual-stack-cluster|go-modules)\.test/,
    ],
    changed: RIG,
  },
  {
    shares: [/\/(bad-days)\.test/, /\/(bad-minute)\.test/, /\/(elections)\.test/, /\/(ownership)\.test/],
    changed: /^(kubeapi|test\/kube\/driver|test\/compliance)\//,
  },
]

/** A guest takes a minute or more for each. */
const KERNEL_TURNS: readonly Turns[] = [
  {
    shares: [
      /\/(gateway-lanes|kernel-conntrack)\.test/,
      /\/(kernel-nexthop|kernel-sysctl)\.test/,
      /\/(kernel-nft|kernel-wireguard)\.test/,
      /\/(kernel-route-table|kernel)\.test/,
    ],
    changed: /^(kernel|gateway|routeagent|test\/guest|test\/compliance)\//,
  },
]

const ETCD_TURNS: readonly Turns[] = [
  {
    shares: [
      /\/(rounds|clustersets)\.test/,
      /\/(authority-rotation|clustersets-move)\.test/,
      /\/(broken-rounds|no-space)\.test/,
      /\/(faults|migrate)\.test/,
    ],
    changed: /^(broker\/(store|recovery|admin|identity)|protocol|runtime|test\/etcd)\//,
  },
]

const FLOOD_TURNS: readonly Turns[] = [
  {
    shares: [/\/(flood-members)\.test/, /\/(flood-quota)\.test/, /\/(flood-strangers)\.test/, /\/(flood-writes)\.test/],
    changed: /^(broker\/(records|sessions|members)|protocol|runtime)\//,
  },
]

const LANES_TURNS: readonly Turns[] = [
  {
    shares: [
      /\/(diagnose-sites|gateway-loss)\.test/,
      /\/(diagnose-lost-sites|gateway-drain-cycles)\.test/,
      /\/(diagnose-hidden-sites|gateway-rotation|gateway-path-size)\.test/,
      /\/(gateway-faults|gateway-ways|site-gateways)\.test/,
    ],
    changed: /^(gateway|routeagent|kernel|explain|reconcile|runtime|model\/lanes|cli\/status|test\/(lanes|failover))\//,
  },
]

const always = (): Promise<undefined> => Promise.resolve(undefined)

/** Network namespaces can be made: tried, not guessed. */
function netnsProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to make network namespaces')
  const tried = spawnSync('unshare', ['--net', 'true'])
  return Promise.resolve(tried.status === 0 ? undefined : 'this machine does not allow network namespaces')
}

function kernelProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to share the root folder with the guest')
  const found = ['/usr/bin/qemu-system-x86_64'].some((path) => existsSync(path))
  return Promise.resolve(found ? undefined : 'needs the package qemu-system-x86')
}

function etcdProblem(): Promise<string | undefined> {
  return Promise.resolve(existsSync('/usr/bin/etcd') ? undefined : 'needs the package etcd-server')
}

function kubeProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to make network namespaces for nodes')
  return Promise.resolve(kubeProgramsMissing())
}

export const TIERS: readonly Tier[] = [
  {
    name: 'unit',
    folders: [...PRODUCT, 'demo'].map((name) => `test/${name}`),
    skip: always,
    beside: true,
    // What most files load takes longer than what they do: loaded once for many, they take a third of the time. More
    // than processors: some wait for a server's deadline.
    batches: 6,
    jobs: 6,
    seconds: 120,
    nearest: 32,
  },
  // Most of their time they wait for programs that they have started.
  {
    name: 'story',
    folders: ['test/story'],
    skip: always,
    prepare: buildProduct,
    beside: true,
    jobs: 2,
    most: 4,
    seconds: 240,
    long: [/authority-rotation|broker-restore/, /clustersets|replicas/, /alerts|broker-kill/],
    nearest: 1,
  },
  {
    name: 'conventions',
    folders: ['test/conventions'],
    skip: always,
    beside: true,
    jobs: 2,
    most: 3,
    seconds: 180,
    looksAtAll: true,
  },
  {
    name: 'netns',
    folders: ['test/netns'],
    skip: netnsProblem,
    prepare: buildProduct,
    jobs: 3,
    most: 5,
    seconds: 300,
    long: WAITING,
    nearest: 2,
    rerun: true,
  },
  // The long ones of network namespaces, of which netns has a short one each.
  {
    name: 'lanes',
    folders: ['test/lanes'],
    skip: netnsProblem,
    prepare: buildProduct,
    jobs: 2,
    most: 4,
    seconds: 500,
    long: [/\/diagnose-/],
    turns: LANES_TURNS,
    rerun: true,
  },
  {
    name: 'hostile',
    folders: ['test/hostile'],
    skip: netnsProblem,
    prepare: buildProduct,
    jobs: 2,
    most: 4,
    seconds: 300,
    turns: FLOOD_TURNS,
    rerun: true,
  },
  // Each file has an etcd of three members of its own.
  {
    name: 'etcd',
    folders: ['test/etcd'],
    skip: etcdProblem,
    prepare: buildProduct,
    jobs: 2,
    most: 4,
    seconds: 180,
    turns: ETCD_TURNS,
    rerun: true,
  },
  {
    name: 'kube',
    folders: ['test/kube'],
    skip: kubeProblem,
    prepare: buildAll,
    jobs: 2,
    // One that needs few processes, in the time that the others wait.
    most: 3,
    seconds: 1800,
    long: LONG,
    turns: KUBE_TURNS,
    alone: CLUSTERS,
    rerun: true,
  },
  // A guest has one processor.
  {
    name: 'kernel',
    folders: ['test/guest'],
    skip: kernelProblem,
    jobs: 2,
    seconds: 1200,
    long: [GATEWAYS],
    turns: KERNEL_TURNS,
    rerun: true,
  },
  // Ten minutes and more, most of them the start of nodes on one emulated processor: .ci/run has no room for it and
  // leaves it out, so that nothing of CI shows a gateway that starts anew, or the loss of a node,
  // with the kernel's own WireGuard (docs/limits.md).
  { name: 'emulated', folders: ['test/emulated'], skip: kernelProblem, jobs: 1, seconds: 1200 },
]
