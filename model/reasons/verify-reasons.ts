/** Reasons that `sealane verify` gives for a check that failed or was left out. */
import type { ReasonTable } from './reason-row.ts'

const OUTPUT = ['output of the command'] as const

export const VERIFY_REASONS = {
  VerifyPodFailed: {
    means: 'A probe pod did not start, or gave no result.',
    todo: 'Read `kubectl describe pod`, or name another image (`--image`).',
    shows: OUTPUT,
  },
  VerifyNotImported: {
    means: "The probe's service was not imported in time.",
    todo: 'Run `sealane diagnose services` in both.',
    shows: OUTPUT,
  },
  VerifyNameUnresolved: {
    means: 'The name has no address, or a wrong one.',
    todo: 'Run `sealane diagnose dns` on the calling side.',
    shows: OUTPUT,
  },
  VerifyNotAnswered: {
    means: 'A call was not answered, or refused.',
    todo: 'Run `sealane diagnose` in both, then look for NetworkPolicies.',
    shows: OUTPUT,
  },
  VerifyForeignAnswer: {
    means: 'Something other than the probe answered.',
    todo: 'Look for a proxy.',
    shows: OUTPUT,
  },
  VerifyAnswered: {
    means: 'A call was answered that is not offered.',
    todo: 'Run `sealane diagnose host` there.',
    shows: OUTPUT,
  },
  VerifySourceChanged: {
    means: 'The source address was translated.',
    todo: 'Look for masquerading.',
    shows: OUTPUT,
  },
  VerifyDamaged: {
    means: 'Long transfers change, or 1,200 octets do not pass.',
    todo: 'Run `sealane diagnose lanes`.',
    shows: OUTPUT,
  },
  VerifySlow: {
    means: 'The throughput is below `--min-throughput`.',
    todo: 'Run `sealane benchmark`.',
    shows: OUTPUT,
  },
  VerifyDrainFailed: {
    means: 'A gateway could not be drained.',
    todo: 'Read the row: you may lack rights on Nodes and Gateways.',
    shows: OUTPUT,
  },
  VerifyCallsLost: {
    means: 'A drain lost calls.',
    todo: 'Run `sealane status` in both.',
    shows: OUTPUT,
  },
  VerifySearchAnswers: {
    means: 'A search domain of the pods has this name.',
    todo: 'End names with a dot.',
    shows: OUTPUT,
  },
  VerifySkipped: {
    means: 'The check was left out.',
    todo: 'The row says why.',
    shows: OUTPUT,
  },
} as const satisfies ReasonTable
