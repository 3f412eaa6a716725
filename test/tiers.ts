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
  /** Why the tier cannot run here; undefined if it can. */
  skip(): Promise<string | undefined>
  /**
   * Whether it may run at the same time as neighbouring tiers that may too, because its tests do not depend on real
   * time.
   */
  readonly beside?: boolean
  /** How many processes run at once. */
  readonly jobs: number
  /**
   * The number of processes that share all files, one after the other in each. Default: each file has a process of its
   * own.
   */
  readonly batches?: number
  /** How many processes run at once while processors are idle, since a file may mostly wait. Default: `jobs`. */
  readonly most?: number
  /** How many seconds one file may take. */
  readonly seconds: number
  /** Long files begin before the others, the longest first, so that none of them runs alone at the end. */
  readonly long?: readonly RegExp[]
  /** Files that take turns if a turn is named (turns.ts). The other files always run. */
  readonly turns?: readonly Turns[]
  /** How many files `--changed` runs, those nearest to the change. Default: all that the change reaches. */
  readonly nearest?: number
  /** Whether its tests read all files of the project, so that any change affects them. */
  readonly looksAtAll?: boolean
  /** Files that run after the others, with nothing beside them. */
  readonly alone?: RegExp
  /**
   * Whether a file that fails is run again alone, because its tests depend on real time and the machine may be busy.
   */
  readonly rerun?: boolean
  /** Builds what the files need, before their time begins. Throws with the reason if it cannot. */
  prepare?(): Promise<void>
}

/** These are about gateways too, but mostly wait: they begin before the others, and others run beside them. */
const WAITING = [/\/(gateway-smoke|sites-smoke)\./, /\/gateway-(life|link|made-anew|restarts)\./]
/** Under emulation these take longest, and a whole processor each: a guest has one, and two guests run at once. */
const GATEWAYS = /\/gateway-/
/**
 * Tests with more than three clusters, of which one measures how long a user waits, and tests in which gateways hand
 * over and clean their node, where lost packets are counted.
 */
const CLUSTERS = /five-clusters|newcomer|node-life|several-gateways/
/** These take a minute or more on several clusters, and partly wait for what Kubernetes does in its own time. */
const LONG = [
  /install\.|repair/,
  /several-gateways|node-life/,
  /image\./,
  /broker-replicas|day-two/,
  /joined-clusters|leaving/,
  /dual-stack/,
  /bad-days|bad-minute/,
]

/** Files that stand in for a cluster in the kube tier: their own tests run if they have changed. */
const RIG =
  /^test\/(test-kubelet\/|kube\/(cmd|coredns|network-policies|render|conformance|support)\/|kube\/(go\.|run-conformance)|support\/netns)/

/** The shares are of nearly equal length, with two files at once: five to eight minutes each. */
const KUBE_TURNS: readonly Turns[] = [
  {
    shares: [
      /\/(install|dual-stack|dual-stack-overlap)\.test/,
      /\/(several-gateways|helm|newcomer)\.test/,
      /\/(joined-clusters|package)\.test/,
      /\/(node-life|node-autoscaling|leaving)\.test/,
      /\/(five-clusters|repair|image)\.test/,
      /\/(broker-replicas|day-two)\.test/,
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

/** Each file takes a guest a minute or more. */
const KERNEL_TURNS: readonly Turns[] = [
  {
    shares: [
      /\/(gateway-lanes|kernel-conntrack)\.test/,
      /\/(kernel-nexthop|kernel-sysctl|kernel-xfrm)\.test/,
      /\/(kernel-nft|kernel-wireguard)\.test/,
      /\/(kernel-route-table|kernel|relay)\.test/,
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
      /\/(diagnose-sites|gateway-loss|explain-probe|access|gateway-dual-stack|transit-sites|verify-failover|relayed-back|monitoring|nat-life|nat-kinds|udp-stale-endpoint)\.test/,
      /\/(diagnose-lost-sites|gateway-drain-cycles|site-without-folder|flows|web-relayed-sites|relayed-sites|closed-without-node-table|gateway-link|overlay-probes|closed-overlay)\.test/,
      /\/(diagnose-hidden-sites|gateway-rotation|gateway-path-size|web-relayed-back|traffic-policies|port-mapped-sites|relayed-wireguard|guessed-ports|closed-without-tables)\.test/,
      /\/(gateway-faults|gateway-ways|site-gateways|site-of-several-hubs|gateway-nat|punched-sites|transit-handover|gateway-made-anew)\.test/,
    ],
    changed:
      /^(gateway|routeagent|relay|kernel|explain|reconcile|runtime|model\/lanes|cli\/status|kubeapi\/remote|compose\/hub|test\/(lanes|failover))\//,
  },
  // Both run where what they show has changed, because the netns tier, which always runs, has little of it.
  {
    shares: [/\/(nat-matrix|routeagent-shares)\.test/, /\/(rebinding-sites|routeagent-endpoints)\.test/],
    changed:
      /^(gateway|routeagent|relay|kernel|reconcile|runtime|model\/(lanes|services)|test\/(lanes|(gateway|routeagent)\/support))\//,
  },
]

const LONG_TURNS: readonly Turns[] = [
  {
    shares: [
      /\/(authority-rotation|compiled-copy|broker-verify|added-pod-cidr)\.test/,
      /\/(alerts|broker-restore|site-agents|policies-in-bundle)\.test/,
      /\/(cli-backup|clustersets|topology|what-is-loaded)\.test/,
      /\/(backup|broker-kill|leaderships|replicas|dns-fuzz)\.test/,
    ],
    changed: /^(broker|agent|protocol|runtime|compose|test\/(long|story))\//,
  },
]

const always = (): Promise<undefined> => Promise.resolve(undefined)

/** Whether network namespaces can be made: the test tries it instead of guessing. */
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

function browserProblem(): Promise<string | undefined> {
  return Promise.resolve(existsSync('/usr/bin/chromium') ? undefined : 'needs the package chromium')
}

export const TIERS: readonly Tier[] = [
  {
    name: 'unit',
    folders: [...PRODUCT, 'demo'].map((name) => `test/${name}`),
    skip: always,
    beside: true,
    // Loading modules takes most files longer than their tests, so they are loaded once for many files, which takes a
    // third of the time. There are more processes than processors, since some wait for a server's deadline.
    batches: 6,
    jobs: 6,
    seconds: 120,
    nearest: 32,
  },
  // These files mostly wait for programs that they have started.
  {
    name: 'story',
    folders: ['test/story'],
    skip: always,
    prepare: buildProduct,
    beside: true,
    // Sites and members run in the process of the file, and each file loads most of the product.
    batches: 4,
    jobs: 2,
    most: 4,
    seconds: 240,
    long: [/status|several-hubs/],
    nearest: 1,
  },
  {
    name: 'conventions',
    folders: ['test/conventions'],
    skip: always,
    beside: true,
    batches: 2,
    jobs: 2,
    seconds: 180,
    long: [/run-files|rerun/],
    looksAtAll: true,
  },
  {
    name: 'netns',
    folders: ['test/netns'],
    skip: netnsProblem,
    prepare: buildProduct,
    // These files wait most of their time.
    jobs: 4,
    most: 8,
    seconds: 300,
    long: WAITING,
    nearest: 2,
    rerun: true,
  },
  // Long stories of sites, members and brokers; the story and unit tiers have a short form of each.
  {
    name: 'long',
    folders: ['test/long'],
    skip: always,
    prepare: buildProduct,
    jobs: 2,
    most: 4,
    seconds: 300,
    long: [/authority-rotation|broker-restore/],
    turns: LONG_TURNS,
    nearest: 1,
  },
  // The long tests with network namespaces; the netns tier has a short form of each.
  {
    name: 'lanes',
    folders: ['test/lanes'],
    skip: netnsProblem,
    prepare: buildProduct,
    jobs: 2,
    most: 4,
    seconds: 500,
    long: [/\/diagnose-/, /\/(site-of-several-hubs|traffic-policies|gateway-nat|access)\./],
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
  // Each file builds the page, and has a Chromium of its own.
  {
    name: 'browser',
    folders: ['test/browser'],
    skip: browserProblem,
    jobs: 2,
    seconds: 180,
    rerun: true,
  },
  {
    name: 'kube',
    folders: ['test/kube'],
    skip: kubeProblem,
    prepare: buildAll,
    jobs: 2,
    // A third file, which needs few processes, runs while the others wait.
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
  // These take ten minutes and more, most of it to start nodes on one emulated processor. CI has no time for them and
  // leaves them out, so CI does not cover a gateway restart, or the loss of a node, with the kernel's own WireGuard
  // (docs/limits.md).
  { name: 'emulated', folders: ['test/emulated'], skip: kernelProblem, jobs: 1, seconds: 1200 },
]
