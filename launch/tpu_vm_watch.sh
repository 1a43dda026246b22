# shellcheck shell=bash disable=SC2154
# The command `watch` of tpu_vm.sh, which sources this file.

# Prints the next action: 'wait WHY', gone, install, run, failed, finished, 'end WHY'.
next_step() {
    local queued node lines
    queued=$(state_of queued-resources) || { echo wait: no answer && return; }
    node=$(state_of tpu-vm) || { echo wait: no answer && return; }
    case $queued in
        ABSENT | ACTIVE) ;; # then the state of the node decides
        FAILED | SUSPENDED) echo gone && return ;;
        *) echo "wait: $queued" && return ;; # WAITING_FOR_RESOURCES, SUSPENDING, ...
    esac
    case $node in
        READY) ;;
        ABSENT | PREEMPTED | TERMINATED | STOPPED) echo gone && return ;;
        *) echo "wait: $node" && return ;; # CREATING, REPAIRING, ...
    esac
    if ! lines=$(training | grep '^worker '); then
        echo "wait: no answer from the workers"
        return
    fi
    case $lines in
        *": running "*) echo "wait: training" ;; # if one fails, all end within minutes
        *": not installed"*) echo install ;;
        *": stopped by hand"*) echo "end it was stopped by hand; 'run' goes on" ;;
        *)
            if grep -q ': ended with status 2$' <<< "$lines"; then
                echo "end it wants something mended: see 'follow'"
            elif ! grep -qv ': ended with status 0$' <<< "$lines"; then
                echo finished
            elif ! grep -qv -e ': not started$' -e ' 0$' -e ' 143$' <<< "$lines"; then
                echo run # 143: saved and stopped by SIGTERM, as before a maintenance
            else
                echo failed
            fi
            ;;
    esac
}

watch() {
    if [[ -n $dry_run ]]; then
        say "one round after a preemption; without --dry_run a look every $every s:"
        state_of queued-resources > /dev/null
        state_of tpu-vm > /dev/null
        training
        delete && queue && install && run
        return
    fi
    local failures=0 step last=''
    while true; do
        step=$(next_step)
        [[ $step == "$last" ]] || say "$(date +%T) $step"
        last=$step
        case $step in
            gone)
                say "$name is not there (preempted, or never asked for): asking for it"
                { delete && queue; } || say "not now; trying again"
                ;;
            install) install || say "installing failed; trying again" ;;
            run) run || say "starting failed; trying again" ;;
            failed)
                failures=$((failures + 1))
                if ((failures > restarts)); then
                    say "the training failed $failures times; see 'follow'"
                    return 1
                fi
                say "the training failed; restart $failures of $restarts"
                run || say "starting failed; trying again"
                ;;
            finished)
                say "the training is finished; $name costs until it is deleted"
                return
                ;;
            "end "*)
                say "${step#end }"
                return 1
                ;;
        esac
        sleep "$every"
    done
}
