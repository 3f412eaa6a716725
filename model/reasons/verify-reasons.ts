/** Reasons that `sealane verify` gives for a check that failed or was left out. */
import type { ReasonTable } from './reason-row.ts'

const OUTPUT = ['output of the command'] as const

export const VERIFY_REASONS = {
  VerifyPodNotStarted: {
    means: 'A probe pod of `sealane verify` or `sealane benchmark` did not start in time.',
    todo: 'Read `kubectl describe pod` in the named namespace. `--image` names an image that its nodes can get without a secret.',
    shows: OUTPUT,
  },
  VerifyPodSilent: {
    means: 'A command in a probe pod gave no result.',
    todo: 'Run it again. If it lasts, compare the versions of this command and of the image (`sealane version`).',
    shows: OUTPUT,
  },
  VerifyNotImported: {
    means: 'The service that the probe exports was not imported by the other member in time.',
    todo: 'Run `sealane diagnose services` in both. The condition `sealane.io/Imported` of the ServiceExport says more.',
    shows: OUTPUT,
  },
  VerifyNameUnresolved: {
    means: 'The name of the exported service has no address, or another one than its import has.',
    todo: 'Run `sealane diagnose dns` on the calling side.',
    shows: OUTPUT,
  },
  VerifyNotAnswered: {
    means: 'A call that should be answered was not answered in time.',
    todo: 'Run `sealane diagnose` in both. If all links are up, look for a NetworkPolicy or a firewall that drops it.',
    shows: OUTPUT,
  },
  VerifyRefused: {
    means: 'A call that should be answered was refused or cut.',
    todo: 'Run `sealane access check` for the two ends, and look for a NetworkPolicy that rejects it.',
    shows: OUTPUT,
  },
  VerifyForeignAnswer: {
    means: 'Something else than the probe of the called member answered.',
    todo: 'Look for a proxy or a program that answers at this address.',
    shows: OUTPUT,
  },
  VerifyAnswered: {
    means: 'A call was answered although the called member does not offer it.',
    todo: 'Check `sealane access` of the called member and `sealane diagnose host` there: its rules may be missing.',
    shows: OUTPUT,
  },
  VerifySourceChanged: {
    means: 'The called pod saw another source address than that of the caller.',
    todo: "Look for masquerading on the caller's node: the CNI must not translate calls to other members.",
    shows: OUTPUT,
  },
  VerifyDamaged: {
    means: 'A long transfer came back changed.',
    todo: 'Switch off checksum offload on the named path and run it again.',
    shows: OUTPUT,
  },
  VerifySmallDatagrams: {
    means: 'Datagrams of 1,200 octets do not pass, which QUIC and many other protocols use.',
    todo: 'Run `sealane diagnose lanes`: the MTU of a path may be lower than that of the links.',
    shows: OUTPUT,
  },
  VerifySlow: {
    means: 'The throughput is below `--min-throughput`.',
    todo: 'Compare with `sealane benchmark`, which measures inside the cluster in the same run.',
    shows: OUTPUT,
  },
  VerifyCallsLost: {
    means: 'Calls were lost while a gateway was drained.',
    todo: 'Run `sealane status` in both: each should have a second gateway with healthy links.',
    shows: OUTPUT,
  },
  VerifySearchAnswers: {
    means: 'A search domain of the pods answers for the name before the clusterset is asked.',
    todo: 'Remove the wildcard record of that domain, or let clients end the name with a dot.',
    shows: OUTPUT,
  },
  VerifyNotShown: {
    means: 'A refusal proves nothing while the same call is not answered where it should be.',
    todo: 'Mend the failed check that is named, and run it again.',
    shows: OUTPUT,
  },
  VerifyNotPossible: {
    means: 'The check was left out: it is not possible between these members.',
    todo: 'Nothing.',
    shows: OUTPUT,
  },
  VerifyNotAsked: {
    means: 'The check was left out: it has to be asked for by a flag.',
    todo: 'Nothing.',
    shows: OUTPUT,
  },
} as const satisfies ReasonTable
