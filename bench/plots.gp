# plots.gp - the charts of plots/, from build/*.tsv as `make -C bench` leaves them.
# Run by `make -C bench plots`, in bench/.

set terminal svg size 760,430 font "sans-serif,12" background "white"
set encoding utf8
set datafile separator "\t"
set key outside right top vertical Left reverse spacing 1.2 samplen 2
set grid ytics lc rgb "#dddddd" lw 1
set border 3 lc rgb "#555555"
set tics nomirror
set bmargin 5.5

full = "#b3261e"
normal = "#1f5fa8"
set style line 1 lc rgb full lw 2 pt 7 ps 0.6            # FULL, stored
set style line 2 lc rgb full lw 2 pt 5 ps 0.6 dt (8,4)   # FULL, to done
set style line 3 lc rgb normal lw 2 pt 7 ps 0.6          # NORMAL, stored
set style line 4 lc rgb normal lw 2 pt 5 ps 0.6 dt (8,4) # NORMAL, to done
set style line 5 lc rgb full lw 1.5 dt (2,3)             # raw SQLite
set style line 6 lc rgb normal lw 1.5 dt (2,3)

# One line of a chart: the rows of a file where level and condition hold, as value, min, max.
awk(file, level, want) = sprintf("< awk -F'\\t' '$1 == \"%s\" && %s' build/%s.tsv", \
                                 level, want, file)
by(level, want) = awk("throughput", level, "$2 !~ /publish/ && " . want)
grown(level, job) = awk("growth", level, "$2 == \"" . job . "\"")
machine(name) = system("head -1 build/" . name . ".tsv | cut -c3- | sed 's/; /\\n/'")
raw(level) = real(system("awk -F'\\t' '$1 == \"" . level . "\" && $2 == \"raw\" { print $6 }'" \
                         . " build/throughput.tsv"))
set label 1 noenhanced at screen 0.02, screen 0.06 font ",9" textcolor rgb "#777777"

# ---- by batch size

set output "plots/batch.svg"
set label 1 machine("throughput")
set title "Throughput by batch size, one thread" font ",14"
set xlabel "events per eb\\_send" offset 0, 0.6
set ylabel "events per second"
set logscale xy 10
set format y "%.0s%c"
set xrange [0.8:1250]
set yrange [*:*]
plot by("NORMAL", "$3 == 0 && $4 == 1") using 5:6:7:8 with yerrorlines ls 3 \
         title "NORMAL, stored", \
     by("NORMAL", "$3 == 1 && $4 == 1") using 5:6:7:8 with yerrorlines ls 4 \
         title "NORMAL, to done", \
     by("FULL", "$3 == 0 && $4 == 1") using 5:6:7:8 with yerrorlines ls 1 title "FULL, stored", \
     by("FULL", "$3 == 1 && $4 == 1") using 5:6:7:8 with yerrorlines ls 2 title "FULL, to done", \
     raw("NORMAL") ls 6 title "raw, NORMAL, 1 a commit", \
     raw("FULL") ls 5 title "raw, FULL, 1 a commit"

# ---- by publisher threads

set output "plots/threads.svg"
set title "Throughput by publisher threads, eb\\_post one by one" font ",14"
set xlabel "threads that call eb\\_post" offset 0, 0.6
set logscale x 2
set xrange [0.9:36]
plot by("NORMAL", "$3 == 0 && $5 == 1") using 4:6:7:8 with yerrorlines ls 3 \
         title "NORMAL, stored", \
     by("NORMAL", "$3 == 1 && $5 == 1") using 4:6:7:8 with yerrorlines ls 4 \
         title "NORMAL, to done", \
     by("FULL", "$3 == 0 && $5 == 1") using 4:6:7:8 with yerrorlines ls 1 title "FULL, stored", \
     by("FULL", "$3 == 1 && $5 == 1") using 4:6:7:8 with yerrorlines ls 2 title "FULL, to done", \
     raw("NORMAL") ls 6 title "raw, NORMAL, 1 a commit", \
     raw("FULL") ls 5 title "raw, FULL, 1 a commit"

# ---- by rows in the file

set output "plots/rows.svg"
set label 1 machine("growth")
set title "Throughput by rows in the file, beside a file of 10,000 rows" font ",14"
set xlabel "events in the file" offset 0, 0.6
set ylabel "events per second, at 10,000 rows = 1"
set logscale x 10
unset logscale y
set format x "%.0s%c"
set format y "%.1f"
set xrange [8000:*]
set yrange [0:2]
plot grown("NORMAL", "eb_send, 100 per call") using 3:6:7:8 with yerrorlines ls 3 \
         title "NORMAL, 100 per call", \
     grown("NORMAL", "eb_post to done, 1 thread") using 3:6:7:8 with yerrorlines ls 4 \
         title "NORMAL, 1 by 1 to done", \
     grown("FULL", "eb_send, 100 per call") using 3:6:7:8 with yerrorlines ls 1 \
         title "FULL, 100 per call", \
     grown("FULL", "eb_post to done, 1 thread") using 3:6:7:8 with yerrorlines ls 2 \
         title "FULL, 1 by 1 to done", \
     1 lc rgb "#999999" lw 1 notitle

# ---- latency: percentiles by their number of nines

set output "plots/latency.svg"
set label 1 machine("latency")
set title "Latency, 500 events per second" font ",14"
set xlabel "percentile" offset 0, 0.6
set ylabel "microseconds"
unset logscale x
set logscale y 10
set format y "%g"
set yrange [10:*]
nines(p) = -log10(1 - p / 100.0)
set xrange [0:3.05]
set xtics ("0" 0, "50" nines(50), "90" 1, "99" 2, "99.9" 3)
file = "build/latency.tsv"
plot file index "FULL, eb_post to handler start" using (nines($1)):2 with lines ls 1 \
         title "FULL, handler starts", \
     file index "FULL, raw commit, same tables" using (nines($1)):2 with lines ls 5 \
         title "FULL, raw commit", \
     file index "NORMAL, eb_post to handler start" using (nines($1)):2 with lines ls 3 \
         title "NORMAL, handler starts", \
     file index "NORMAL, eb_post" using (nines($1)):2 with lines ls 4 \
         title "NORMAL, eb\\_post returns", \
     file index "NORMAL, raw commit, same tables" using (nines($1)):2 with lines ls 6 \
         title "NORMAL, raw commit"
